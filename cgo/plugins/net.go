package plugins

// #include <stdlib.h>
// #include "net_calls.h"
import "C"

import (
	"fmt"
	"strings"
	"sync"

	"lightpath/collectives/transport/netplugin"
)

// Versions of the interface that Net can load.
const (
	oldest = C.NET_OLDEST
	newest = C.NET_NEWEST
)

// Net is [netplugin.Loader] over dlopen. A library stays loaded.
type Net struct{}

var _ netplugin.Loader = Net{}

// loaded are the plugins of this process by their address: NCCL initializes those before version 11 only once.
var loaded struct {
	sync.Mutex
	once map[*C.struct_net_plugin]bool
}

// Open implements [netplugin.Loader].
func (Net) Open(files []string, o netplugin.OpenOptions) (netplugin.Plugin, error) {
	loaded.Lock()
	defer loaded.Unlock()
	found, file, err := find(files, "ncclNetPlugin_v", oldest, newest)
	if err != nil {
		return nil, err
	}
	p := &plugin{n: C.struct_lpn{plugin: (*C.struct_net_plugin)(found.at), version: found.version}}
	name := C.GoString(p.n.plugin.name)
	if o.Want != "" && !strings.EqualFold(name, o.Want) {
		return nil, fmt.Errorf("%w: %s: its network is %q, not %q", ErrLoad, file, name, o.Want)
	}
	p.name = fmt.Sprintf("%s (v%d)", name, int(p.n.version))
	p.log = listen(o.Log)
	if err := p.start(o.Comm); err != nil {
		p.log.end()
		return nil, fmt.Errorf("%w: %s: %w", ErrLoad, file, err)
	}
	return p, nil
}

// plugin is a [netplugin.Plugin].
type plugin struct {
	n       C.struct_lpn
	name    string
	devices []netplugin.Device
	log     *sink
}

// start initializes the plugin for a communicator, and reads its devices.
func (p *plugin) start(comm uint64) error {
	if p.n.version >= 11 || !loaded.once[p.n.plugin] {
		r := C.lpn_init(p.n, C.uint64_t(comm))
		if r.rc != 0 {
			return p.error("init", r.rc)
		}
		p.n.context = r.object
		if loaded.once == nil {
			loaded.once = map[*C.struct_net_plugin]bool{}
		}
		loaded.once[p.n.plugin] = true
	}
	err := p.readDevices()
	if err != nil {
		C.lpn_finalize(p.n)
	}
	return err
}

func (p *plugin) readDevices() error {
	count := C.lpn_devices(p.n)
	if count.rc != 0 {
		return p.error("devices", count.rc)
	}
	if count.size <= 0 {
		return fmt.Errorf("network plugin %s has no devices on this host", p.name)
	}
	for i := range count.size {
		d := C.lpn_device(p.n, i)
		if d.rc != 0 {
			return fmt.Errorf("device %d: %w", int(i), p.error("getProperties", d.rc))
		}
		if d.memory_kinds&C.NET_HOST_MEMORY == 0 {
			return fmt.Errorf("device %d of network plugin %s does not support host memory", int(i), p.name)
		}
		p.devices = append(p.devices, netplugin.Device{
			Name: C.GoString(d.name), Rail: int(d.rail), Plane: int(d.plane), MaxBytes: int64(d.max_bytes),
			DMABufs: d.memory_kinds&C.NET_DMABUF != 0, Addresses: d.memory_kinds&C.NET_DEVICE_MEMORY != 0,
			MustFlush: d.flush != 0,
		})
	}
	return nil
}

// error returns the error of a function's result, nil for 0.
func (p *plugin) error(function string, rc C.int) error {
	if rc == 0 {
		return nil
	}
	return &netplugin.CallError{Plugin: p.name, Function: function, Code: int(rc)}
}

func (p *plugin) Name() string                { return p.name }
func (p *plugin) Devices() []netplugin.Device { return p.devices }

func (p *plugin) Close() error {
	err := p.error("finalize", C.lpn_finalize(p.n))
	p.log.end()
	return err
}
