package verbs

// #include "verbs.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"lightpath/collectives/transport/rdma"
)

// The shared structures and constants are the same in Go and C, or this does not compile.
const (
	_ = uint(unsafe.Sizeof(rdma.SendRequest{}) - C.sizeof_struct_lpv_send)
	_ = uint(C.sizeof_struct_lpv_send - unsafe.Sizeof(rdma.SendRequest{}))
	_ = uint(unsafe.Sizeof(rdma.Completion{}) - C.sizeof_struct_lpv_done)
	_ = uint(C.sizeof_struct_lpv_done - unsafe.Sizeof(rdma.Completion{}))
	_ = uint(rdma.SendSignaled-C.LPV_SIGNALED) + uint(rdma.SendInline-C.LPV_INLINE) +
		uint(rdma.SendImmediate-C.LPV_IMMEDIATE)
)

// device is an [rdma.Device]: a context and a protection domain.
type device struct {
	name string
	d    C.struct_lpv_device
}

var portStates = [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

func (d *device) Port(port int) (rdma.PortInfo, error) {
	var p C.struct_lpv_port
	if rc := C.lpv_port(&d.d, C.int(port), &p); rc != 0 {
		return rdma.PortInfo{}, wrap(rc, "%s port %d", d.name, port)
	}
	info := rdma.PortInfo{
		Active: p.state == 4, State: "unknown", MTU: int(p.mtu), LID: uint16(p.lid),
		Ethernet: bool(p.ethernet), GIDs: int(p.gids), Soft: bool(d.d.soft),
	}
	if p.state >= 0 && int(p.state) < len(portStates) {
		info.State = portStates[p.state]
	}
	return info, nil
}

func (d *device) GID(port, index int) (rdma.Entry, error) {
	var e rdma.Entry
	var kind C.int
	rc := C.lpv_gid(&d.d, C.int(port), C.int(index), (*C.uint8_t)(&e.GID[0]), &kind)
	e.Type = rdma.EntryType(kind)
	return e, wrap(rc, "%s port %d GID %d", d.name, port, index)
}

// eventKinds are the kinds of events in the order of verbs.h.
var eventKinds = [...]rdma.EventKind{
	C.LPV_OTHER: rdma.OtherEvent, C.LPV_DEVICE_FATAL: rdma.DeviceFatal, C.LPV_QUEUE_FAILED: rdma.QueueFailed,
	C.LPV_CQ_FAILED: rdma.CQFailed,
	C.LPV_PORT_DOWN: rdma.PortDown, C.LPV_PORT_UP: rdma.PortUp, C.LPV_ADDRESS_MOVED: rdma.AddressMoved,
}

// Hot path: no allocation, because ranks that wait ask repeatedly.
func (d *device) Event() (rdma.Event, bool, error) {
	var kind C.int
	var number C.uint32_t
	switch rc := C.lpv_event(&d.d, &kind, &number); rc {
	case 0:
	case C.int(syscall.EAGAIN):
		return rdma.Event{}, false, nil
	default:
		return rdma.Event{}, false, wrap(rc, "%s: events", d.name)
	}
	e := rdma.Event{Kind: eventKinds[kind]}
	if e.Kind == rdma.QueueFailed {
		e.QPN = uint32(number)
	} else {
		e.Port = int(number)
	}
	return e, true, nil
}

func (d *device) EventFD() int { return int(d.d.events) }

func (d *device) Close() error { return wrap(C.lpv_close(&d.d), "close %s", d.name) }

// region is an [rdma.Region].
type region struct{ r C.struct_lpv_region }

func (d *device) Register(mem []byte, written bool) (rdma.Region, error) {
	r := &region{}
	if rc := C.lpv_register(&d.d, unsafe.Pointer(&mem[0]), C.size_t(len(mem)), C._Bool(written), &r.r); rc != 0 {
		return nil, wrap(rc, "%s: register memory", d.name)
	}
	return r, nil
}

// RegisterBuf implements [rdma.Device].
func (d *device) RegisterBuf(fd int, offset uint64, size int, at uint64) (rdma.Region, error) {
	r := &region{}
	rc := C.lpv_register_buf(&d.d, C.int(fd), C.uint64_t(offset), C.size_t(size), C.uint64_t(at), &r.r)
	if rc == C.int(syscall.ENOTSUP) || rc == C.int(syscall.ENOSYS) {
		return nil, fmt.Errorf("verbs: %s: register a dma-buf: the device, its kernel driver or libibverbs "+
			"(rdma-core 34 or later is needed) takes none: %w", d.name, syscall.Errno(rc))
	}
	if rc != 0 {
		return nil, wrap(rc, "%s: register a dma-buf", d.name)
	}
	return r, nil
}

func (r *region) Keys() (local, remote uint32) { return uint32(r.r.lkey), uint32(r.r.rkey) }
func (r *region) Close() error                 { return wrap(C.lpv_deregister(&r.r), "deregister memory") }

// cq is an [rdma.CQ] with its own event channel.
type cq struct{ c C.struct_lpv_cq }

func (d *device) NewCQ(entries int) (rdma.CQ, error) {
	q := &cq{}
	if rc := C.lpv_cq(&d.d, C.int(entries), &q.c); rc != 0 {
		return nil, wrap(rc, "%s: completion queue of %d", d.name, entries)
	}
	return q, nil
}

// Hot path: no allocation, one call into C.
func (q *cq) Poll(into []rdma.Completion) (int, error) {
	n := C.lpv_poll(q.c.cq, (*C.struct_lpv_done)(unsafe.Pointer(unsafe.SliceData(into))), C.int(len(into)))
	if n < 0 {
		return 0, wrap(C.int(syscall.EIO), "poll")
	}
	return int(n), nil
}

func (q *cq) Arm() error { return wrap(C.lpv_cq_arm(&q.c), "request an event") }
func (q *cq) FD() int    { return int(q.c.fd) }

func (q *cq) Quiet() (bool, error) {
	rc := C.lpv_cq_quiet(&q.c)
	if rc == C.int(syscall.EAGAIN) {
		return false, nil
	}
	return rc == 0, wrap(rc, "event")
}

func (q *cq) Close() error { return wrap(C.lpv_cq_close(&q.c), "destroy completion queue") }
