package plugins

// #include <stdlib.h>
// #include "net_calls.h"
import "C"

import (
	"unsafe"

	"lightpath/collectives/transport/netplugin"
)

// dialer is a [netplugin.Dialer]. Plugins keep the state of a connection that does not exist yet in its handle.
type dialer struct {
	p      *plugin
	device C.int
	handle unsafe.Pointer
}

func (p *plugin) Dial(device int, handle []byte) netplugin.Dialer {
	return &dialer{p, C.int(device), C.CBytes(handle)}
}

func (d *dialer) Connect() (netplugin.Conn, error) {
	r := C.lpn_connect(d.p.n, d.device, d.handle)
	if r.rc != 0 || r.object == 0 {
		return nil, d.p.error("connect", r.rc)
	}
	return &conn{d.p, r.object, C.LPN_SEND}, nil
}

func (d *dialer) Close() {
	C.free(d.handle)
	d.handle = nil
}

// listener is a [netplugin.Listener].
type listener struct {
	p  *plugin
	at C.uintptr_t
}

func (p *plugin) Listen(device int) (netplugin.Listener, []byte, error) {
	handle := C.calloc(1, C.NET_HANDLE)
	defer C.free(handle)
	r := C.lpn_listen(p.n, C.int(device), handle)
	if r.rc != 0 {
		return nil, nil, p.error("listen", r.rc)
	}
	return &listener{p, r.object}, C.GoBytes(handle, C.NET_HANDLE), nil
}

func (l *listener) Accept() (netplugin.Conn, error) {
	r := C.lpn_accept(l.p.n, l.at)
	if r.rc != 0 || r.object == 0 {
		return nil, l.p.error("accept", r.rc)
	}
	return &conn{l.p, r.object, C.LPN_RECV}, nil
}

func (l *listener) Close() error {
	return l.p.error("closeListen", C.lpn_close(l.p.n, C.LPN_LISTEN, l.at))
}

// conn is a [netplugin.Conn].
type conn struct {
	p    *plugin
	at   C.uintptr_t
	kind C.int
}

func (c *conn) Register(mem []byte) (netplugin.Memory, error) {
	r := C.lpn_register(c.p.n, c.at, unsafe.Pointer(unsafe.SliceData(mem)), C.size_t(len(mem)), C.NET_HOST_MEMORY)
	return netplugin.Memory(r.object), c.p.error("regMr", r.rc)
}

func (c *conn) RegisterDevice(at unsafe.Pointer, size int, fd int, offset uint64) (netplugin.Memory, error) {
	if fd < 0 {
		r := C.lpn_register(c.p.n, c.at, at, C.size_t(size), C.NET_DEVICE_MEMORY)
		return netplugin.Memory(r.object), c.p.error("regMr", r.rc)
	}
	r := C.lpn_register_dmabuf(c.p.n, c.at, at, C.size_t(size), C.uint64_t(offset), C.int(fd))
	return netplugin.Memory(r.object), c.p.error("regMrDmaBuf", r.rc)
}

func (c *conn) Deregister(m netplugin.Memory) error {
	return c.p.error("deregMr", C.lpn_deregister(c.p.n, c.at, C.uintptr_t(m)))
}

// Hot path: no allocation, one call into C.
func (c *conn) Send(at unsafe.Pointer, size int, m netplugin.Memory) (netplugin.Request, error) {
	r := C.lpn_isend(c.p.n, c.at, at, C.size_t(size), C.uintptr_t(m))
	return netplugin.Request(r.object), c.p.error("isend", r.rc)
}

// Hot path: no allocation, one call into C.
func (c *conn) Receive(at unsafe.Pointer, size int, m netplugin.Memory) (netplugin.Request, error) {
	r := C.lpn_irecv(c.p.n, c.at, at, C.size_t(size), C.uintptr_t(m))
	return netplugin.Request(r.object), c.p.error("irecv", r.rc)
}

// Hot path: no allocation, one call into C.
func (c *conn) Flush(at unsafe.Pointer, size int, m netplugin.Memory) (netplugin.Request, error) {
	r := C.lpn_iflush(c.p.n, c.at, at, C.int(size), C.uintptr_t(m))
	return netplugin.Request(r.object), c.p.error("iflush", r.rc)
}

// Hot path: no allocation, one call into C.
func (c *conn) Test(q netplugin.Request) (size int, done bool, err error) {
	r := C.lpn_test(c.p.n, C.uintptr_t(q))
	return int(r.size), r.rc == 0 && r.done != 0, c.p.error("test", r.rc)
}

func (c *conn) Close() error {
	function := "closeSend"
	if c.kind == C.LPN_RECV {
		function = "closeRecv"
	}
	return c.p.error(function, C.lpn_close(c.p.n, c.kind, c.at))
}
