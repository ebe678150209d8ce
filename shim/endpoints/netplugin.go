package endpoints

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/netplugin"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/settings"
	"lightpath/shim/topology"
)

// plugins loads network plugins; nil if the program cannot load any.
var plugins netplugin.Loader

// UseNetPlugins sets the loader of network plugins, and returns the previous one. Call it before the first communicator
// is made.
func UseNetPlugins(l netplugin.Loader) (before netplugin.Loader) {
	before, plugins = plugins, l
	return before
}

// linger is how long a rank that closes waits for its peers to close, too.
const linger = time.Second

// PluginPorts are a rank's devices of a network plugin, one for each plane.
type PluginPorts struct {
	plugin netplugin.Plugin
	names  string
	rank   *netplugin.Rank
	// DMABufs and Addresses: all devices reach memory of GPUs in this way. MustFlush: one needs flushes on all GPUs.
	DMABufs, Addresses, MustFlush bool
}

// listenPlugin opens this rank's devices of a plugin, for messages or for frames.
func listenPlugin(c *comm.Core, messages bool) (*PluginPorts, error) {
	p, err := openPlugin(c)
	if err != nil {
		return nil, err
	}
	devices, names, err := devicesOnPlanes(c, p)
	m := &PluginPorts{plugin: p, names: names, DMABufs: true, Addresses: true}
	if err == nil {
		m.rank, err = netplugin.Listen(netplugin.ListenOptions{Rank: c.Rank, Ranks: c.Ranks, Plugin: p, Devices: devices,
			Messages: messages})
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	for _, i := range devices {
		d := p.Devices()[i]
		m.DMABufs, m.Addresses = m.DMABufs && d.DMABufs, m.Addresses && d.Addresses
		m.MustFlush = m.MustFlush || d.MustFlush
	}
	return m, nil
}

// joinPlugin makes packet planes of the devices of a network plugin. The ranks exchange the handles of their listeners
// through the leader.
func joinPlugin(c *comm.Core) (_ transport.Endpoint, err error) {
	m, err := listenPlugin(c, false)
	if err != nil {
		return nil, err
	}
	addrs, err := comm.Exchange(c, m.Addrs())
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	ctx, cancel := connecting(c)
	defer cancel()
	e, err := netplugin.Connect(ctx, m.rank, optionsOf(c, addrs))
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	c.Log.Info(log.Net, "net: rank %d uses %s", c.Rank, m)
	return &pluginEndpoint{e, sync.OnceValue(func() error {
		err := errors.Join(e.Close(), m.Close())
		if err != nil {
			c.Log.Warn("%v", err)
		}
		return err
	})}, nil
}

func optionsOf(c *comm.Core, addrs []netplugin.Addrs) netplugin.Options {
	return netplugin.Options{Addrs: addrs, Linger: linger, Failed: c.FailedChan()}
}

// OpenPlugin opens the devices of a network plugin that this rank uses for messages. Their connections are apart from
// those of the packet planes.
func OpenPlugin(c *comm.Core) (*PluginPorts, error) { return listenPlugin(c, true) }

// Addrs returns the addresses that the other ranks need.
func (m *PluginPorts) Addrs() netplugin.Addrs { return m.rank.Addrs() }

// Connect connects this rank to all other ranks, which call it at about the same time. flush: see [netplugin.Options].
func (m *PluginPorts) Connect(c *comm.Core, addrs []netplugin.Addrs, flush bool) (*netplugin.Messenger, error) {
	ctx, cancel := connecting(c)
	defer cancel()
	o := optionsOf(c, addrs)
	o.Flush = flush
	return netplugin.ConnectMessages(ctx, m.rank, o)
}

// String returns the plugin and its device on each plane.
func (m *PluginPorts) String() string { return fmt.Sprintf("plugin %s: %s", m.plugin.Name(), m.names) }

// Close ends the use of the plugin. The caller closes the endpoint before.
func (m *PluginPorts) Close() error { return errors.Join(m.rank.Close(), m.plugin.Close()) }

// openPlugin opens the first plugin of NCCL_NET_PLUGIN that works.
func openPlugin(c *comm.Core) (netplugin.Plugin, error) {
	if plugins == nil {
		return nil, fmt.Errorf("this program loads no network plugins: %w", errdefs.ErrInvalidUsage)
	}
	all := settings.PluginFiles("net", c.Cfg.Plugins.Net)
	if len(all) == 0 {
		return nil, fmt.Errorf("NCCL_NET_PLUGIN=%s names no plugin: %w", c.Cfg.Plugins.Net, errdefs.ErrInvalidUsage)
	}
	o := netplugin.OpenOptions{Comm: c.ID, Want: c.Cfg.PluginNet(), Log: c.Log.Plugin}
	var failed []string
	for _, files := range all {
		p, err := plugins.Open(files, o)
		if err == nil {
			for _, why := range failed {
				c.Log.Info(log.Net, "net: %s", why)
			}
			return p, nil
		}
		failed = append(failed, err.Error())
	}
	return nil, fmt.Errorf("NCCL_NET_PLUGIN: %s: %w", strings.Join(failed, "; "), errdefs.ErrInvalidUsage)
}

// devicesOnPlanes returns this rank's device on each plane, and their names.
func devicesOnPlanes(c *comm.Core, p netplugin.Plugin) (devices []int, names string, err error) {
	all := p.Devices()
	ports := make([]topology.HCA, len(all))
	var texts []string
	for i, d := range all {
		texts = append(texts, d.Name)
		ports[i] = topology.HCA{Device: d.Name, Port: i, Rail: d.Rail, Plane: d.Plane}
	}
	used, err := topology.OnPlanes(ports, c.Cfg.Planes, localRank(c))
	if err != nil {
		return nil, "", fmt.Errorf("LIGHTPATH_PLANES=%d: network plugin %s has no device on one of the planes (%s): %w",
			c.Cfg.Planes, p.Name(), strings.Join(texts, ", "), errdefs.ErrInvalidUsage)
	}
	texts = nil
	for j, d := range used {
		devices = append(devices, d.Port)
		texts = append(texts, fmt.Sprintf("%s on plane %d", d.Device, j))
	}
	return devices, strings.Join(texts, ", "), nil
}

// pluginEndpoint is an endpoint that also ends the use of its plugin.
type pluginEndpoint struct {
	*netplugin.Endpoint
	close func() error
}

// Close implements transport.Endpoint.
func (e *pluginEndpoint) Close() error { return e.close() }
