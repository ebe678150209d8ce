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

// joinPlugin makes packet planes of the devices of a network plugin. The ranks exchange the handles of their listeners
// through the leader.
func joinPlugin(c *comm.Core) (_ transport.Endpoint, err error) {
	p, err := openPlugin(c)
	if err != nil {
		return nil, err
	}
	devices, names, err := devicesOnPlanes(c, p)
	var r *netplugin.Rank
	if err == nil {
		r, err = netplugin.Listen(netplugin.ListenOptions{Rank: c.Rank, Ranks: c.Ranks, Plugin: p, Devices: devices})
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	e, err := connectPlugin(c, r)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	c.Log.Info(log.Net, "net: rank %d uses plugin %s: %s", c.Rank, p.Name(), names)
	return &pluginEndpoint{e, sync.OnceValue(func() error {
		err := errors.Join(e.Close(), p.Close())
		if err != nil {
			c.Log.Warn("%v", err)
		}
		return err
	})}, nil
}

// openPlugin opens the first plugin of NCCL_NET_PLUGIN that works.
func openPlugin(c *comm.Core) (netplugin.Plugin, error) {
	if plugins == nil {
		return nil, fmt.Errorf("this program loads no network plugins: %w", errdefs.ErrInvalidUsage)
	}
	all := settings.PluginFiles("net", c.Cfg.NetPlugin)
	if len(all) == 0 {
		return nil, fmt.Errorf("NCCL_NET_PLUGIN=%s names no plugin: %w", c.Cfg.NetPlugin, errdefs.ErrInvalidUsage)
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

// connectPlugin connects a rank, which it takes over, to all other ranks.
func connectPlugin(c *comm.Core, r *netplugin.Rank) (*netplugin.Endpoint, error) {
	addrs, err := comm.Exchange(c, r.Addrs())
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	ctx, cancel := connecting(c)
	defer cancel()
	return netplugin.Connect(ctx, r, netplugin.Options{Addrs: addrs, Linger: linger, Failed: c.FailedChan()})
}

// pluginEndpoint is an endpoint that also ends the use of its plugin.
type pluginEndpoint struct {
	*netplugin.Endpoint
	close func() error
}

// Close implements transport.Endpoint.
func (e *pluginEndpoint) Close() error { return e.close() }
