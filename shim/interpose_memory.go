package shim

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/transport/rdma/rendezvous"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// stretchOfDevice is memory of the device.
type stretchOfDevice struct {
	at     unsafe.Pointer
	size   int64
	base   unsafe.Pointer     // what the driver has given
	region *rendezvous.Region // as RDMA ports know it, nil where they do not
}

// alloc returns memory of the device, which RDMA ports know where they are to send from it. The context has been entered.
func (in *interposer) alloc(size int64) (m stretchOfDevice, err error) {
	if in.gdr != nil {
		return in.gdr.alloc(size)
	}
	m.at, err = in.peers.AllocExchange(int(size))
	m.base, m.size = m.at, size
	return m, err
}

// memory returns so many bytes of the device for the script.
func (p *issuing) memory(size int64) (unsafe.Pointer, error) {
	l := &p.in.launching
	if p.capture.ID != 0 {
		return p.memoryOfGraph(size)
	}
	if size > l.memory.size {
		m, err := p.in.alloc(size)
		if err != nil {
			return nil, err
		}
		if l.memory.at != nil {
			l.old = append(l.old, l.memory)
		}
		l.memory = m
	}
	return l.memory.at, nil
}

// memoryOfGraph returns memory that lives as long as the graph that is captured.
func (p *issuing) memoryOfGraph(size int64) (unsafe.Pointer, error) {
	if size == 0 {
		return nil, nil
	}
	m, err := p.in.alloc(size)
	if err != nil {
		return nil, err
	}
	// Not where the driver says that the graph is gone: it takes no calls there.
	return m.at, device.Active().Retain(p.capture, keepsakes.add(func() { go p.in.freeMemory(m) }))
}

// freeMemory gives memory back, from any thread.
func (in *interposer) freeMemory(m stretchOfDevice) {
	if m.region != nil {
		_ = in.gdr.forget(m.region)
	}
	m.free(in.peers, in.ctx)
}

// free gives memory back that no port knows any more.
func (m stretchOfDevice) free(peers device.Peers, ctx device.Context) {
	if m.base != nil && peers.EnterContext(ctx) == nil {
		_ = peers.FreeExchange(m.base)
		device.Active().Leave()
	}
}

// over tells whether all scripts have left their streams.
func (in *interposer) over() bool {
	if in == nil {
		return true
	}
	if in.cross.outstanding.Load() > 0 {
		return false
	}
	in.launch.Lock()
	defer in.launch.Unlock()
	if !in.last.set {
		return true
	}
	reached, err := device.Active().Reached(in.last.event)
	return reached || err != nil
}

// free gives back what no stream uses any more.
func (in *interposer) free() {
	if in == nil || !in.over() {
		return
	}
	l := &in.launching
	l.launch.Lock()
	defer l.launch.Unlock()
	for _, m := range append(l.old, l.memory) {
		in.freeMemory(m)
	}
	if x := in.gdr; x != nil {
		for _, m := range x.rooms {
			in.freeMemory(m)
		}
		x.free()
	}
	for _, list := range [][]device.Event{l.joints, l.events, {l.fork, l.last.event, l.graph.event}} {
		for _, e := range list {
			if e != 0 {
				_ = device.Active().FreeEvent(e)
			}
		}
	}
	for _, s := range l.streams {
		if s != 0 {
			_ = l.peers.FreeStream(s)
		}
	}
	for _, x := range l.cross.idle {
		crossingTable.remove(x.slot)
	}
	l.cross.idle = nil
	memory.Unpin(l.cross.words)
	l.old, l.memory, l.last.set, l.cross.words = nil, stretchOfDevice{}, false, memory.Pinned{}
}

// keepsakes are what is to be done when graphs are gone.
var keepsakes = keepsakeTable{done: map[uintptr]func(){}}

type keepsakeTable struct {
	mu   sync.Mutex
	next atomic.Uintptr
	done map[uintptr]func()
}

func (t *keepsakeTable) add(f func()) uintptr {
	n := interposedToken | t.next.Add(1)<<tokenBits | tokenForget
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[n] = f
	return n
}

// keep has f done when the graph of a capture is gone, or at once where the driver does not take it.
func (t *keepsakeTable) keep(capture device.Capture, f func()) error {
	token := t.add(f)
	err := device.Active().Retain(capture, token)
	if err != nil {
		t.forget(token)
	}
	return err
}

// drop forgets what is not to be done.
func (t *keepsakeTable) drop(token uintptr) {
	t.mu.Lock()
	delete(t.done, token)
	t.mu.Unlock()
}

func (t *keepsakeTable) forget(token uintptr) {
	t.mu.Lock()
	f := t.done[token]
	delete(t.done, token)
	t.mu.Unlock()
	if f != nil {
		f()
	}
}
