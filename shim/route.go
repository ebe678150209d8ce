package shim

import (
	"fmt"
	"strings"

	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/path/nic"
	"lightpath/shim/path/peer"
	"lightpath/shim/path/staged"
	"lightpath/shim/settings"
	"lightpath/shim/stream"
)

// Path is the data path of a call.
type Path uint8

// The paths: see the packages below path.
const (
	Host Path = iota
	Staged
	Peer
	NIC
	Foreign
)

// Route returns the path of a call that has been checked. It depends on values that all ranks of the communicator
// share, and on onDevice: the call's group has a stream or device memory. onDevice chooses only between paths that are
// the same for other ranks. scripted: the call has a script, which [nic.HasScript] says and only planes with circuits
// need.
func Route(c *calls.Call, f *calls.Facts, onDevice, scripted bool) Path {
	named := c.Options.Planes != 0 || c.Options.Plan.Digits != 0
	if f.Launches != calls.NoLaunches && !c.Kind.OneSided() && !named {
		switch {
		case f.Launches == calls.ByPeers:
			return Peer
		case f.Launches == calls.ByPorts || scripted:
			return NIC
		}
	}
	return routeHere(f, onDevice)
}

// routeHere is [Route] for calls that are not put on streams at once.
func routeHere(f *calls.Facts, onDevice bool) Path {
	switch {
	case onDevice && f.Foreign:
		return Foreign
	case onDevice:
		return Staged
	}
	return Host
}

// launches reports whether the path puts calls on streams that need no CPU there.
func (p Path) launches() bool { return p == Peer || p == NIC }

// attachDevice prepares how ranks exchange device memory.
func attachDevice(c *comm.Core) error {
	if err := stream.CheckQueues(c); err != nil {
		return err
	}
	if err := chooseDevicePath(c); err != nil || stream.Of(c) == nil {
		return err
	}
	if err := staged.Prepare(c); err != nil {
		c.Log.Info(log.Init, "staging is prepared by the first call: %v", err)
	}
	return nil
}

// chooseDevicePath chooses how ranks exchange device memory, the same way on all ranks: by the devices themselves, by
// RDMA ports or a network plugin, or through host memory.
func chooseDevicePath(c *comm.Core) error {
	byPorts := calls.ByPorts
	if circuits.Of(c) != nil {
		byPorts = calls.ByPortsOverCircuits
	}
	path, whyStaged := c.Cfg.Device.Path, []string{}
	for _, way := range []struct {
		path     string
		attach   func(*comm.Core) (why string, err error)
		launches calls.Launches
		says     string
	}{
		{settings.DevicePathDirect, peer.Attach, calls.ByPeers, "direct"},
		{settings.DevicePathRDMA, nic.Attach, byPorts, "rdma, GPUDirect"},
	} {
		if path != settings.DevicePathAuto && path != way.path {
			continue
		}
		why, err := way.attach(c)
		switch {
		case err != nil:
			return err
		case why == "":
			calls.FactsOf(c).Launches = way.launches
			c.Log.Info(log.Init, "device path: %s", way.says)
			return nil
		case path == way.path:
			return fmt.Errorf("shim: LIGHTPATH_DEVICE_PATH=%s: %s: %w", path, why, errdefs.ErrInvalidUsage)
		}
		whyStaged = append(whyStaged, fmt.Sprintf("not %s: %s", way.path, why))
	}
	if stream.Of(c) != nil && path != settings.DevicePathStaged {
		c.Log.Info(log.Init, "device path: staged through host memory; %s", strings.Join(whyStaged, "; "))
	}
	return nil
}
