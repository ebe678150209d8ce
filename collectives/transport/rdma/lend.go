package rdma

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// lendLeast is how much payload is worth a second piece in each request, and that the caller waits for
// the first to be complete.
const lendLeast = 8 << 10

// known is memory of the caller that devices know.
type known struct {
	from, to uintptr
	regions  []Region // by device of the endpoint
	keys     []uint32
}

// grant is leave to read payload where it is.
type grant struct {
	given bool
	key   uint32
}

// Traffic is how payload has been sent, in bytes.
type Traffic struct {
	Copied int64 // by way of registered memory of the endpoint
	Lent   int64 // from where it was
}

// Traffic returns what the planes have sent.
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
		return nil, fmt.Errorf("rdma: rank %d: no %d bytes at %p", e.rank, size, at)
	}
	e.registering.Lock()
	defer e.registering.Unlock()
	if e.poll.Closed() {
		return nil, transport.ErrClosed
	}
	k := &known{from: uintptr(at), to: uintptr(at) + size}
	for _, d := range e.devices {
		r, err := d.Register(unsafe.Slice((*byte)(at), size), false)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("rdma: rank %d: register %d bytes (RLIMIT_MEMLOCK?): %w", e.rank, size, err), k.close())
		}
		key, _ := r.Keys()
		k.regions, k.keys = append(k.regions, r), append(k.keys, key)
	}
	e.mu.Lock()
	e.known = append(e.known, k)
	e.mu.Unlock()
	return func() error { return e.release(k) }, nil
}

// release forgets memory. It may have been forgotten.
func (e *Endpoint) release(k *known) error {
	e.registering.Lock()
	defer e.registering.Unlock()
	e.mu.Lock()
	i := slices.Index(e.known, k)
	if i >= 0 {
		e.known = slices.Delete(e.known, i, i+1)
	}
	e.mu.Unlock()
	if i < 0 {
		return nil
	}
	return k.close()
}

func (k *known) close() (err error) {
	for _, r := range k.regions {
		err = errors.Join(err, r.Close())
	}
	return err
}

// grant looks for payload in what the plane's device knows.
// Hot path: no allocation, no logging.
func (p *plane) grant(payload []byte) grant {
	if len(payload) < lendLeast {
		return grant{}
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(payload)))
	for _, k := range p.e.known {
		if k.from <= from && from+uintptr(len(payload)) <= k.to {
			return grant{true, k.keys[p.at.number]}
		}
	}
	return grant{}
}

// Lend implements [transport.Borrower].
// Hot path: no allocation, no logging.
func (p *plane) Lend(h *wire.Header, payload []byte) (n int, mark uint64, err error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	g := p.grant(payload)
	if n, err = p.send(h, payload, g); n > 0 && g.given {
		mark = p.peers[h.Dst].posted
	}
	return n, mark, err
}

// Returned implements [transport.Borrower].
// Hot path: no allocation, no logging.
func (p *plane) Returned(dst int) (uint64, error) {
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
