package sharedmem

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
)

// Call is one collective. Buffers and counts are NCCL's: Block is the bytes of one rank's block. The
// memory is the caller's until the operation has finished.
type Call struct {
	Collective schedule.Collective
	Root       int
	Block      int
	Send, Recv unsafe.Pointer
	InPlace    bool
	// Combine reduces; Scale, where not nil, is applied to every contribution first.
	Combine datatype.CombineFunc
	// CombinePast, where not nil, is Combine for results that go past the caches.
	CombinePast datatype.CombineFunc
	Scale       datatype.ScaleFunc
	Factor      float64
	// Seq and Signature are what all ranks must agree on.
	Seq       uint64
	Signature uint32
}

// Op is a collective in progress: an [exec.Engine]. It begins with its first Poll; operations of an
// arena run one after another. Its zero value is ready for Bind, again when it has finished.
//
// A chunk is laid out (every rank's contribution, in its slot) and taken (by whoever needs it). Between
// the two, where the collective reduces and is large, each rank reduces a part of the chunk and puts
// that into its slot. The three go on side by side for successive chunks, so that ranks wait for each
// other only where one is slow.
type Op struct {
	Call
	a      *Arena
	path   path
	ring   int
	chain  uint64
	first  uint64 // number of the first chunk
	chunks uint64
	chunk  int // bytes of a chunk in every block that it is cut from
	stride int // between the pieces of a slot, where it has one per rank
	inline bool
	stream bool  // results go past the caches
	direct bool  // this rank's chunks are read where they are
	at     where // then: in a region that the others have mapped, if it has a number
	// mapping: what this rank sends or gets is in such a region, or will be, or what others send.
	mapping bool
	way     int // that the chunk goes which is laid out, or reduced
	loaded  int // bytes of it that are in its slot
	progress
}

// progress is how far an operation has come; its zero value is not at all.
type progress struct {
	started              bool
	laid, reduced, taken uint64 // chunks
	// From whom the chunks to be reduced and taken have come: so many, counted from this rank on.
	seenLaid, seenReduced int

	peer int  // that is waited for
	gone bool // peer had closed its end before the last look
}

// Bind prepares o for a call.
func (o *Op) Bind(a *Arena, c *Call) {
	o.Call, o.a, o.progress = *c, a, progress{} // what begin sets stays
}

// Poll implements [exec.Engine].
// Hot path: no allocation, no locks, no logging.
func (o *Op) Poll() (moved, done bool, err error) {
	if !o.started {
		o.begin()
	}
	for {
		step, err := o.step()
		if err != nil {
			return moved, false, err
		}
		if o.finished() {
			return true, true, nil
		}
		if !step {
			break
		}
		moved = true
	}
	if moved {
		o.gone = false
		return true, false, nil
	}
	return false, false, o.lost()
}

// step moves each stage by one chunk, where it can.
func (o *Op) step() (moved bool, err error) {
	// This rank, too, must be done with what it laid into the slot before.
	if o.laid < o.chunks && o.laid < o.taken+o.a.rings[o.ring].slots {
		peer, ok := o.a.hasRoom(o.ring, o.first+o.laid)
		if ok {
			o.lay(o.first + o.laid)
			o.laid++
			moved = true
		} else {
			o.peer = peer
		}
	}
	if o.path.reduces && o.reduced < o.laid {
		ok, err := o.arrived(o.first+o.reduced, everyone, &o.seenLaid)
		if err != nil {
			return moved, err
		}
		if ok {
			if err := o.reduce(o.first + o.reduced); err != nil {
				return moved, err
			}
			o.reduced++
			o.seenLaid = 0
			moved = true
		}
	}
	ready := o.laid
	if o.path.reduces {
		ready = o.reduced
	}
	if o.taken < ready {
		k := o.first + o.taken
		ok := false
		if o.path.reduces {
			ok = o.haveReduced(k)
		} else if ok, err = o.arrived(k, o.path.from, &o.seenLaid); err != nil {
			return moved, err
		}
		if ok {
			if err := o.take(k); err != nil {
				return moved, err
			}
			o.a.release(o.ring, k)
			o.taken++
			o.seenReduced = 0
			if !o.path.reduces {
				o.seenLaid = 0
			}
			moved = true
		}
	}
	return moved, nil
}

// Whom a chunk must have come from, where that is no single rank.
const (
	everyone = -1
	nobody   = -2
)

// arrived reports whether chunk k has come from those that it must come from, and checks that it is
// part of the same call.
func (o *Op) arrived(k uint64, from int, seen *int) (bool, error) {
	switch from {
	case nobody:
		return true, nil
	case everyone:
		for *seen < o.a.ranks-1 {
			if ok, err := o.came(o.other(*seen), k); !ok || err != nil {
				return false, err
			}
			*seen++
		}
		return true, nil
	default:
		return o.came(from, k)
	}
}

// other returns the i-th of the other ranks, counted from this one on, so that not all look at the
// same one first.
func (o *Op) other(i int) int {
	p := o.a.rank + 1 + i
	if p >= o.a.ranks {
		p -= o.a.ranks
	}
	return p
}

func (o *Op) came(p int, k uint64) (bool, error) {
	s := o.a.slot(&o.a.rings[o.ring], p, k)
	if n := word(s, 0).Load(); n != k+1 {
		o.peer = p
		if n > k+1 {
			return false, o.strange(p, s)
		}
		return false, nil
	}
	h := (*header)(s)
	if h.seq != o.Seq || h.sig != o.Signature || h.chain != o.chain {
		return false, o.strange(p, s)
	}
	return true, nil
}

// header is the beginning of a slot, after number.
type header struct {
	number uint64 // atomic
	seq    uint64
	chain  uint64
	sig    uint32
	place  uint32
	// In large slots.
	at, region, offset uint64
}

// strange is the error of a chunk that belongs to another call than this one.
func (o *Op) strange(p int, s unsafe.Pointer) error {
	h := (*header)(s)
	if h.seq == o.Seq && h.sig != o.Signature {
		return fmt.Errorf("shared: rank %d made a different call than rank %d (operation %d): %w", p, o.a.rank, o.Seq, exec.ErrSignature)
	}
	return fmt.Errorf("shared: rank %d is in operation %d, or has come to it by other calls than rank %d to operation %d: %w",
		p, h.seq, o.a.rank, o.Seq, exec.ErrSequence)
}

// haveReduced reports whether those whose parts of chunk k this rank takes have reduced them.
func (o *Op) haveReduced(k uint64) bool {
	if o.path.from == nobody {
		return true
	}
	for o.seenReduced < o.a.ranks-1 {
		p := o.other(o.seenReduced)
		if word(o.a.slot(&o.a.rings[o.ring], p, k), reducedAt).Load() != k+1 {
			o.peer = p
			return false
		}
		o.seenReduced++
	}
	return true
}

// lost reports that the rank that is waited for has closed its end. What it stored before counts, so
// it is looked for once more.
func (o *Op) lost() error {
	if !o.a.end.Closed(o.peer) {
		return nil
	}
	if !o.gone {
		o.gone = true
		return nil
	}
	return fmt.Errorf("shared: rank %d, operation %d: %w: rank %d has closed its memory", o.a.rank, o.Seq, transport.ErrPeerLost, o.peer)
}

// Waiting implements [exec.Engine].
func (o *Op) Waiting() exec.Wait {
	return exec.Wait{
		Rank: o.a.rank, Op: o.Seq, Kind: program.Recv, Peer: o.peer, Step: int(o.taken),
		Done: int64(min(int(o.taken)*o.chunk, o.Block)), Bytes: int64(o.Block),
	}
}
