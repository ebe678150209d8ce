package rdma

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// minZeroCopy is the smallest payload in bytes that is sent without a copy. Each such request has a second piece, and
// the caller waits until the request is complete.
const minZeroCopy = 8 << 10

// registration is memory of the caller that is registered with all devices of the endpoint.
type registration struct {
	from, to uintptr
	regions  []Region // by device of the endpoint
	keys     []uint32
}

// localKey is the key of a payload in registered memory; found is false for other payloads.
type localKey struct {
	found bool
	key   uint32
}

// Traffic counts payload bytes sent.
type Traffic struct {
	Copied int64 // through staging memory of the endpoint
	Lent   int64 // without a copy
}

// Traffic returns the sum over all planes.
func (e *Endpoint) Traffic() (t Traffic) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.planes {
		t.Copied += p.traffic.Copied
		t.Lent += p.traffic.Lent
	}
	return t
}

// Register implements [transport.Registrar].
func (e *Endpoint) Register(at unsafe.Pointer, size uintptr) (release func() error, err error) {
	if size == 0 || uintptr(at)+size < uintptr(at) {
		return nil, fmt.Errorf("rdma: rank %d: register %d bytes at %p: not a memory range", e.rank, size, at)
	}
	e.registerMu.Lock()
	defer e.registerMu.Unlock()
	if e.poll.Closed() {
		return nil, transport.ErrClosed
	}
	k := &registration{from: uintptr(at), to: uintptr(at) + size}
	for _, d := range e.devices {
		r, err := d.Register(unsafe.Slice((*byte)(at), size), false)
		if err != nil {
			err = fmt.Errorf("rdma: rank %d: register %d bytes (RLIMIT_MEMLOCK?): %w", e.rank, size, err)
			return nil, errors.Join(err, k.close())
		}
		key, _ := r.Keys()
		k.regions, k.keys = append(k.regions, r), append(k.keys, key)
	}
	e.mu.Lock()
	e.registered = append(e.registered, k)
	e.mu.Unlock()
	return func() error { return e.release(k) }, nil
}

// release removes a registration. Idempotent.
func (e *Endpoint) release(k *registration) error {
	e.registerMu.Lock()
	defer e.registerMu.Unlock()
	e.mu.Lock()
	i := slices.Index(e.registered, k)
	if i >= 0 {
		e.registered = slices.Delete(e.registered, i, i+1)
	}
	e.mu.Unlock()
	if i < 0 {
		return nil
	}
	return k.close()
}

func (k *registration) close() (err error) {
	for _, r := range k.regions {
		err = errors.Join(err, r.Close())
	}
	return err
}

// findKey returns the key of the plane's device for the payload.
// Hot path: no allocation, no logging.
func (p *plane) findKey(payload []byte) localKey {
	if len(payload) < minZeroCopy {
		return localKey{}
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(payload)))
	for _, k := range p.e.registered {
		if k.from <= from && from+uintptr(len(payload)) <= k.to {
			return localKey{true, k.keys[p.dev.number]}
		}
	}
	return localKey{}
}

// Lend implements [transport.Borrower].
// Hot path: no allocation, no logging.
func (p *plane) Lend(h *wire.Header, payload []byte) (n int, mark uint64, err error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	g := p.findKey(payload)
	if n, err = p.send(h, payload, g); n > 0 && g.found {
		mark = p.peers[h.Dst].posted
	}
	return n, mark, err
}

// Returned implements [transport.Borrower].
// Hot path: no allocation, no logging.
func (p *plane) Returned(dst int, _ bool) (uint64, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	q, err := p.peer(dst)
	if err != nil {
		return 0, err
	}
	if q.completed != q.posted {
		if err := p.progress(); err != nil {
			return 0, err
		}
	}
	if q.err != nil && q.completed != q.posted {
		return 0, q.err
	}
	return q.completed, nil
}
