package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lightpath/internal/brief"
	"lightpath/shim/errdefs"
)

// NCCLPaths is what variables of NCCL's say of data paths. They refine what LIGHTPATH_TRANSPORT and
// LIGHTPATH_DEVICE_PATH leave open; where those say something, they come first (see settle). Bans are the setting that
// says so, as NCCL_SHM_DISABLE=1, or "".
type NCCLPaths struct {
	Net      string // netSocket, netIB, the name of a plugin's network or "": the network between hosts
	NoShared string // ranks share no memory, but within a process
	NoRDMA   string // no network is RDMA
	NoDirect string // devices do not reach each other's memory
	NoRemote string // ports do not reach memory of devices
}

// The networks that NCCL itself has. Others come from plugins.
const (
	netSocket = "Socket"
	netIB     = "IB"
)

// notUsed is why the value of a variable changes nothing. NCCL falls back to its default too, so the value is a warning
// and no error.
type notUsed struct{ error }

// setNet reads NCCL_NET. Networks other than NCCL's own belong to plugins: those of the other library if there is one.
func (c *Config) setNet(v string) error {
	switch {
	case setChoice(&c.NCCL.Net, v, netIB, netSocket) == nil:
	case c.Other.library != "":
		return notUsed{fmt.Errorf("%q is a network of the library of LIGHTPATH_NCCL_FALLBACK_LIB", v)}
	default:
		c.NCCL.Net = v
	}
	return nil
}

// ban notes in p that a variable has a value that forbids: any number that forbids says so of.
func ban(p *string, name, v string, forbids func(int64) bool) error {
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		return notUsed{fmt.Errorf("%q is not a number", brief.Text(v, 64))}
	}
	if forbids(n) {
		*p = fmt.Sprintf("%s=%d", name, n)
	}
	return nil
}

// The numbers by which NCCL's variables forbid.
func isOne(n int64) bool   { return n == 1 }
func isZero(n int64) bool  { return n == 0 }
func nonZero(n int64) bool { return n != 0 }

// levels are NCCL's distances between two devices, the nearest first. oldLevels are the levels that numbers mean.
var (
	levels    = []string{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"}
	oldLevels = []string{"LOC", "PIX", "PXB", "PHB", "SYS"}
)

// banBelow notes in p that a variable allows no distance as far as least. Case matters, as in NCCL.
func banBelow(p *string, name, v, least string) error {
	at := slices.Index(levels, v)
	if at < 0 && v[0] >= '0' && v[0] <= '9' {
		n, err := strconv.ParseInt(v, 0, 64)
		if err != nil {
			return notUsed{fmt.Errorf("%q is not a distance", brief.Text(v, 64))}
		}
		at = slices.Index(levels, oldLevels[min(n, int64(len(oldLevels)-1))])
	}
	if at < 0 {
		return notUsed{fmt.Errorf("%q is none of %s, and not a number", brief.Text(v, 64), strings.Join(levels, ", "))}
	}
	if at < slices.Index(levels, least) {
		*p = name + "=" + brief.Text(v, 64)
	}
	return nil
}

// settle drops values of NCCL's variables if Lightpath's own variables decide already, with a warning if they differ.
// The remaining values take effect.
func (c *Config) settle() error {
	p := &c.NCCL
	net := ""
	if p.Net != "" {
		net = "NCCL_NET=" + p.Net
	}
	first := "LIGHTPATH_TRANSPORT=" + c.Transport
	switch c.Transport {
	case "auto", TransportEBPF:
		if p.Net == netIB && p.NoRDMA != "" {
			return fmt.Errorf("shim: environment variable NCCL_NET: %s, but %s: %w", net, p.NoRDMA, errdefs.ErrInvalidUsage)
		}
	case TransportRDMA:
		if p.Net != netIB {
			c.overruled(net, first)
		}
		c.overruled(p.NoRDMA, first)
		p.Net, p.NoShared, p.NoRDMA = "", "", ""
	case TransportNet:
		if c.PluginNet() == "" {
			c.overruled(net, first)
			p.Net = ""
		}
		p.NoShared = ""
	default:
		if c.Transport == "shm" {
			c.overruled(p.NoShared, first)
		}
		if c.Transport == "tcp" && p.Net != netSocket {
			c.overruled(net, first)
		}
		p.Net, p.NoShared = "", ""
	}
	if first = "LIGHTPATH_DEVICE_PATH=" + c.Device.Path; c.Device.Path != DevicePathAuto {
		if c.Device.Path == DevicePathDirect {
			c.overruled(p.NoDirect, first)
		}
		if c.Device.Path == DevicePathRDMA {
			c.overruled(p.NoRemote, first)
		}
		p.NoDirect, p.NoRemote = "", ""
	}
	return nil
}

// overruled warns of a setting that another one comes before.
func (c *Config) overruled(setting, first string) {
	if setting != "" {
		c.warnings = append(c.warnings, fmt.Sprintf("%s is not used: %s comes before it.", setting, first))
	}
}

// Network is how ranks that share no memory are connected.
func (c *Config) Network() string {
	switch c.NCCL.Net {
	case netIB:
		return TransportRDMA
	case netSocket, "":
		return "tcp"
	}
	return TransportNet
}

// PluginNet is the name of the plugin's network that NCCL_NET asks for, "" if it asks for none.
func (c *Config) PluginNet() string {
	if c.Network() == TransportNet {
		return c.NCCL.Net
	}
	return ""
}

// Wants is the setting that asks for a network between ranks, "" where none does.
func (c *Config) Wants(transport string) string {
	switch {
	case c.Transport == transport:
		return "LIGHTPATH_TRANSPORT=" + transport
	case c.NCCL.Net != "" && c.Network() == transport:
		return "NCCL_NET=" + c.NCCL.Net
	}
	return ""
}

// ForbidsGPUDirect is the setting by which no port reaches memory of devices, "" where none forbids it.
func (c *Config) ForbidsGPUDirect() string {
	switch c.Device.Path {
	case DevicePathDirect, DevicePathStaged:
		return "LIGHTPATH_DEVICE_PATH=" + c.Device.Path
	}
	return c.NCCL.NoRemote
}

// agreed is the part of a rank's settings from NCCL's variables that all ranks must have alike.
func (p *NCCLPaths) agreed() (s string) {
	if p.Net != "" {
		s += " NCCL_NET=" + p.Net
	}
	if p.NoShared != "" {
		s += " " + p.NoShared
	}
	return s
}
