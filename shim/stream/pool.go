package stream

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
)

// A driver may hold its context's lock, in calls that make or free something, until the device is idle. If a stream
// waits for a thread that needs the lock, that never happens: docs/design/gpu-model.md. So the communicators of a
// context share streams, and free nothing when they end. [Pool.Free] does that when the next communicator is made.

// Pool is what the communicators of a context share. Safe for concurrent use.
type Pool struct {
	ctx    uint64 // number of the context
	mu     sync.Mutex
	unused []device.Stream
	sides  []side
	memory []exchangeMemory
	frees  []func()
}

// exchangeMemory is memory of the device that no communicator uses.
type exchangeMemory struct {
	at   unsafe.Pointer
	size int64
}

// side is a stream beside those of the program. One communicator at a time has launches on it.
type side struct {
	stream device.Stream
	owner  any
	word   *uint32 // of the owner; the launch has ended when it has reached value
	value  uint32
}

var pools struct {
	mu         sync.Mutex
	generation uint64 // of the driver
	of         map[poolKey]*Pool
}

// poolKey is a context, or a device of a driver without contexts.
type poolKey struct {
	ctx    device.Context
	device int
}

// PoolOf returns the pool of a context of a device.
func PoolOf(ctx device.Context, on int) *Pool {
	key, id := poolKey{ctx, on}, uint64(0)
	if peers, ok := device.Active().(device.Peers); ok && ctx != 0 {
		id, _ = peers.ContextID(ctx)
	}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if p := pools.of[key]; p != nil && p.ctx != id {
		device.Forget() // the program has reset the device
	}
	if now := device.Generation(); pools.of == nil || pools.generation != now {
		pools.generation, pools.of = now, map[poolKey]*Pool{}
	}
	p := pools.of[key]
	if p == nil {
		p = &Pool{ctx: id}
		pools.of[key] = p
	}
	return p
}

// Prepare makes the side streams, if they do not exist yet, and frees what earlier communicators have left. The driver
// may wait for all work of the device. The caller has entered the context.
func (p *Pool) Prepare() error {
	p.Free()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.sides) < mostSides() {
		s, err := device.Active().NewStream()
		if err != nil {
			return err
		}
		p.sides = append(p.sides, side{stream: s})
	}
	return nil
}

// Sides appends side streams to list, at most n, on which no other communicator has launches. They belong to the owner
// until the word has reached value. Hot path.
func (p *Pool) Sides(list []device.Stream, n int, owner any, word *uint32, value uint32) []device.Stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, own := range [...]bool{true, false} { // streams that it has first: their work comes before anyway
		for i := range p.sides {
			s := &p.sides[i]
			if n == 0 || (s.owner == owner) != own || slices.Contains(list, s.stream) {
				continue
			}
			if !own && s.owner != nil && int32(atomic.LoadUint32(s.word)-s.value) < 0 {
				continue
			}
			s.owner, s.word, s.value = owner, word, value
			list = append(list, s.stream)
			n--
		}
	}
	return list
}

// Leave takes all side streams from a communicator that has ended.
func (p *Pool) Leave(owner any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.sides {
		if s := &p.sides[i]; s.owner == owner {
			s.owner, s.word = nil, nil
		}
	}
}

// Take returns a stream for one communicator alone. The caller has entered the context.
func (p *Pool) Take() (device.Stream, error) {
	p.mu.Lock()
	if n := len(p.unused); n > 0 {
		s := p.unused[n-1]
		p.unused = p.unused[:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	return device.Active().NewStream()
}

// Give takes back a stream that has no work.
func (p *Pool) Give(s device.Stream) {
	if s == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unused = append(p.unused, s)
}

// TakeMemory returns memory of the device of exactly this size, for one communicator alone. The caller has entered the
// context.
func (p *Pool) TakeMemory(size int64) (unsafe.Pointer, error) {
	p.mu.Lock()
	i := slices.IndexFunc(p.memory, func(m exchangeMemory) bool { return m.size == size })
	if i >= 0 {
		at := p.memory[i].at
		p.memory = slices.Delete(p.memory, i, i+1)
		p.mu.Unlock()
		return at, nil
	}
	p.mu.Unlock()
	return device.Active().AllocExchange(int(size))
}

// GiveMemory takes back memory that nothing uses.
func (p *Pool) GiveMemory(at unsafe.Pointer, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory = append(p.memory, exchangeMemory{at, size})
}

// Later keeps a function that frees something until the next communicator of the context is made.
func (p *Pool) Later(free func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frees = append(p.frees, free)
}

// Free frees what earlier communicators have left. The caller has entered the context.
func (p *Pool) Free() {
	p.mu.Lock()
	frees := p.frees
	p.frees = nil
	p.mu.Unlock()
	for _, free := range frees {
		free()
	}
}
