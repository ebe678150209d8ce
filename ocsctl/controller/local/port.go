package local

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"lightpath/internal/shmring"
	"lightpath/plans/circuit"
)

// Layout of a port's memory: a header line, a line with the dirty word, then per plane the ring of posts, each
// from the start of a cache line.
const (
	portMagic = 0x4c50504f // "LPPO"
	lineSize  = 64
	postSlots = 8 // size of a ring of posts, per plane
	postHead  = 8 // bytes of a post before its map: the holder
)

// geometry holds the sizes of a port's memory. Both ends compute the layout from it.
type geometry struct{ planes, ports int }

func (g geometry) slot() int     { return postHead + 4*g.ports }
func (g geometry) ringSize() int { return roundUp(shmring.Size(postSlots, g.slot()), lineSize) }
func (g geometry) ringsAt() int  { return 2 * lineSize }
func (g geometry) size() int     { return g.ringsAt() + g.planes*g.ringSize() }

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// portView is one end's view of a port's memory.
type portView struct {
	dirty *atomic.Uint32 // set after a post, cleared before the core looks
	posts []*shmring.Ring
}

// format marks fresh memory as a port's.
func (g geometry) format(mem []byte) {
	for i, v := range g.header() {
		word(mem, 4*i).Store(v)
	}
}

func (g geometry) header() [4]uint32 {
	return [4]uint32{portMagic, uint32(g.planes), uint32(g.ports), postSlots}
}

// view makes one end's view of mem, which the other end has formatted.
func (g geometry) view(mem []byte) (*portView, error) {
	if len(mem) < g.size() {
		return nil, fmt.Errorf("ocs: port memory has %d bytes, want %d", len(mem), g.size())
	}
	for i, want := range g.header() {
		if got := word(mem, 4*i).Load(); got != want {
			return nil, fmt.Errorf("ocs: port memory: header word %d is %d, want %d", i, got, want)
		}
	}
	v := &portView{dirty: word(mem, lineSize)}
	for p := range g.planes {
		at := g.ringsAt() + p*g.ringSize()
		ring, err := shmring.New(mem[at:at+g.ringSize()], postSlots, g.slot())
		if err != nil {
			return nil, err
		}
		v.posts = append(v.posts, ring)
	}
	return v, nil
}

// post writes a post into the memory. It returns false if the ring is full.
func (v *portView) post(plane int, epoch uint32, holder uint64, target circuit.Permutation) bool {
	slot := v.posts[plane].Reserve()
	if slot == nil {
		return false
	}
	binary.NativeEndian.PutUint64(slot, holder)
	for r, to := range target {
		*(*int32)(unsafe.Pointer(&slot[postHead+4*r])) = int32(to)
	}
	v.posts[plane].Commit(postHead+4*len(target), epoch)
	v.dirty.Store(1)
	return true
}

// taker reads posts from the memory of ports. One goroutine uses it.
type taker struct {
	seen []uint32 // by receiving port: the last post whose map names it
	turn uint32
	last []takenMap // by plane
}

// takenMap is the map of the last post of a plane. Nearly every post repeats it.
type takenMap struct {
	raw    []byte
	target circuit.Permutation // never changed
}

func newTaker(planes, ports int) *taker {
	return &taker{seen: make([]uint32, ports), last: make([]takenMap, planes)}
}

// take passes on the posts of a port. Ranks may write anything at any time, so take copies a post before it checks it.
func (t *taker) take(v *portView, post func(plane int, epoch uint32, holder uint64, target circuit.Permutation)) error {
	if v.dirty.Load() == 0 {
		return nil
	}
	v.dirty.Swap(0) // before reading: a later post sets it again
	for plane, ring := range v.posts {
		for n := 0; ; n++ {
			slot, epoch, err := ring.Peek()
			if err != nil {
				return fmt.Errorf("plane %d: posts: %w", plane, err)
			}
			if slot == nil {
				break
			}
			if n == postSlots { // as many as the ring holds: continue with other ports
				v.dirty.Store(1)
				break
			}
			holder, target, err := t.decode(plane, slot)
			if err != nil {
				return fmt.Errorf("plane %d epoch %d: post: %w", plane, epoch, err)
			}
			ring.Release()
			post(plane, epoch, holder, target)
		}
	}
	return nil
}

// decode returns the holder and the map of a post. If the map equals that of the last post, it returns the same memory,
// so it allocates only for the first post of a barrier.
func (t *taker) decode(plane int, slot []byte) (holder uint64, target circuit.Permutation, err error) {
	if want := postHead + 4*len(t.seen); len(slot) != want {
		return 0, nil, fmt.Errorf("%w: %d bytes for %d ports, want %d", ErrProtocol, len(slot), len(t.seen), want)
	}
	target, err = t.decodeMap(plane, slot[postHead:])
	return binary.NativeEndian.Uint64(slot), target, err
}

func (t *taker) decodeMap(plane int, slot []byte) (circuit.Permutation, error) {
	last, ports := &t.last[plane], len(t.seen)
	if bytes.Equal(slot, last.raw) {
		return last.target, nil
	}
	last.raw = append(last.raw[:0], slot...) // the rank may go on writing
	target := make(circuit.Permutation, ports)
	if t.turn++; t.turn == 0 {
		clear(t.seen)
		t.turn = 1
	}
	for r := range target {
		to := int(int32(binary.NativeEndian.Uint32(last.raw[4*r:])))
		if to != circuit.Dark {
			if to < 0 || to >= ports {
				last.raw = last.raw[:0]
				return nil, fmt.Errorf("%w: port %d to %d of %d", ErrProtocol, r, to, ports)
			}
			if t.seen[to] == t.turn {
				last.raw = last.raw[:0]
				return nil, fmt.Errorf("%w: two ports to %d", ErrProtocol, to)
			}
			t.seen[to] = t.turn
		}
		target[r] = to
	}
	last.target = target
	return target, nil
}

// word views 4 aligned bytes of shared memory.
func word(mem []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[at]))
}
