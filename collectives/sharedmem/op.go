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

// Call is one collective. Buffers and counts are NCCL's: Block is the bytes of one rank's block. The memory is the
// caller's until the operation has finished.
type Call struct {
	Collective schedule.Collective
	Root       int
	Block      int
	Send, Recv unsafe.Pointer
	InPlace    bool
	// Combine reduces. Scale, unless nil, is applied to every contribution first.
	Combine datatype.CombineFunc
	// CombineStream, unless nil, is Combine for results that are written past the caches.
	CombineStream datatype.CombineFunc
	Scale         datatype.ScaleFunc
	Factor        float64
	// Seq and Signature are the same on all ranks.
	Seq       uint64
	Signature uint32
}

// Op is a collective in progress: an [exec.Engine]. It begins with its first Poll. Operations of an arena run one after
// another. The zero value is ready for Bind, and so is an operation that has finished.
//
// Every rank fills a slot with its contribution to a chunk, and consumes the chunk: it reads what it needs from its
// peers' slots. A large collective that reduces has a step in between: each rank reduces a part of the chunk into its
// slot. The three steps run side by side on successive chunks, so that ranks wait for each other only if one is slow.
type Op struct {
	Call
	a      *Arena
	path   path
	ring   int
	chain  uint64
	first  uint64 // number of the first chunk
	chunks uint64
	chunk  int // bytes of a chunk, in every block that it is cut from
	stride int // between the pieces of a slot that has one for each rank
	inline bool
	stream bool // results are written past the caches
	// published: peers read this rank's chunks in its buffer. at is the buffer's place, if it is in a mapped region.
	published bool
	at        regionRef
	mapping   bool      // a buffer of this call, of this rank or a peer, is in a region, so C does not make such calls
	placement placement // of the chunk that is being filled or reduced
	loaded    int       // bytes of it that were copied into the slot
	progress
}

// progress is the state of an operation. The zero value precedes begin.
type progress struct {
	started                   bool
	filled, reduced, consumed uint64 // chunks
	// How many peers' chunks have been seen, counted from this rank on, for the next chunk to reduce or consume.
	seenFilled, seenReduced int

	peer int // the rank that this one waits for
	gone int // 1 + the last rank that had closed its end when this one waited for it
}

// Bind prepares o for a call. begin sets the fields that Bind leaves.
func (o *Op) Bind(a *Arena, c *Call) { o.Call, o.a, o.progress = *c, a, progress{} }

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
		return true, false, nil
	}
	return false, false, o.lost()
}

// step fills, reduces and consumes one chunk each, as far as it can without waiting.
func (o *Op) step() (moved bool, err error) {
	moved = o.stepFill()
	ready := o.filled
	if o.path.reduces {
		reduced, err := o.stepReduce()
		moved = moved || reduced
		if err != nil {
			return moved, err
		}
		ready = o.reduced
	}
	if o.consumed < ready {
		consumed, err := o.stepConsume()
		return moved || consumed, err
	}
	return moved, nil
}

func (o *Op) stepFill() (moved bool) {
	// This rank, too, must have consumed the slot's last chunk.
	if o.filled == o.chunks || o.filled >= o.consumed+o.a.rings[o.ring].slots {
		return false
	}
	peer, ok := o.a.hasRoom(o.ring, o.first+o.filled)
	if !ok {
		o.peer = peer
		return false
	}
	o.fill(o.first + o.filled)
	o.filled++
	return true
}

func (o *Op) stepReduce() (moved bool, err error) {
	if o.reduced == o.filled {
		return false, nil
	}
	if ok, err := o.arrived(o.first+o.reduced, fromAll, &o.seenFilled); !ok || err != nil {
		return false, err
	}
	if err := o.reduce(o.first + o.reduced); err != nil {
		return false, err
	}
	o.reduced++
	o.seenFilled = 0
	return true, nil
}

func (o *Op) stepConsume() (moved bool, err error) {
	k := o.first + o.consumed
	ok := false
	if o.path.reduces {
		ok = o.haveReduced(k)
	} else if ok, err = o.arrived(k, o.path.from, &o.seenFilled); err != nil {
		return false, err
	}
	if !ok {
		return false, nil
	}
	if err := o.consume(k); err != nil {
		return false, err
	}
	o.a.release(o.ring, k)
	o.consumed++
	o.seenReduced = 0
	if !o.path.reduces {
		o.seenFilled = 0
	}
	return true, nil
}

// Values of path.from that are no rank.
const (
	fromAll  = -1
	fromNone = -2
)

// arrived reports whether chunk k has arrived from the ranks that from names, and checks that it is part of the same
// call.
func (o *Op) arrived(k uint64, from int, seen *int) (bool, error) {
	switch from {
	case fromNone:
		return true, nil
	case fromAll:
		for *seen < o.a.ranks-1 {
			if ok, err := o.arrivedFrom(o.nextPeer(*seen), k); !ok || err != nil {
				return false, err
			}
			*seen++
		}
		return true, nil
	default:
		return o.arrivedFrom(from, k)
	}
}

// nextPeer returns the i-th peer, counted from this rank on, so that ranks look at different peers first.
func (o *Op) nextPeer(i int) int {
	p := o.a.rank + 1 + i
	if p >= o.a.ranks {
		p -= o.a.ranks
	}
	return p
}

func (o *Op) arrivedFrom(p int, k uint64) (bool, error) {
	s := o.a.slot(&o.a.rings[o.ring], p, k)
	if n := word(s, 0).Load(); n != k+1 {
		o.peer = p
		if n > k+1 {
			return false, o.mismatch(p, s)
		}
		return false, nil
	}
	h := (*Slot)(s)
	if h.Seq != o.Seq || h.Signature != o.Signature || h.Chain != o.chain {
		return false, o.mismatch(p, s)
	}
	return true, nil
}

// Slot is the header of a slot, see the package comment. C fills slots, too.
type Slot struct {
	Number    uint64 // atomic
	Seq       uint64
	Chain     uint64
	Signature uint32
	Place     uint32
	// In large slots.
	At     uint64
	Region uint64
	Offset uint64
}

// mismatch returns the error of a chunk that belongs to another call.
func (o *Op) mismatch(p int, s unsafe.Pointer) error {
	h := (*Slot)(s)
	if h.Seq == o.Seq && h.Signature != o.Signature {
		return fmt.Errorf("sharedmem: rank %d made a different call than rank %d (operation %d): %w", p, o.a.rank, o.Seq,
			exec.ErrSignature)
	}
	return fmt.Errorf("sharedmem: "+
		"rank %d is in operation %d, or has made other calls than rank %d before operation %d: %w",
		p, h.Seq, o.a.rank, o.Seq, exec.ErrSequence)
}

// haveReduced reports whether the peers have reduced their parts of chunk k, as far as this rank reads them.
func (o *Op) haveReduced(k uint64) bool {
	if o.path.from == fromNone {
		return true
	}
	for o.seenReduced < o.a.ranks-1 {
		p := o.nextPeer(o.seenReduced)
		if word(o.a.slot(&o.a.rings[o.ring], p, k), reducedAt).Load() != k+1 {
			o.peer = p
			return false
		}
		o.seenReduced++
	}
	return true
}

// lost returns an error if the peer that this rank waits for has closed its end. The peer may have stored a chunk after
// this rank looked for it, and then closed. So lost returns the error only if the peer had closed before that look.
func (o *Op) lost() error {
	if !o.a.end.Closed(o.peer) {
		return nil
	}
	if o.gone != o.peer+1 {
		o.gone = o.peer + 1
		return nil
	}
	return fmt.Errorf("sharedmem: rank %d, operation %d: %w: rank %d has closed its memory", o.a.rank, o.Seq,
		transport.ErrPeerLost, o.peer)
}

// Waiting implements [exec.Engine].
func (o *Op) Waiting() exec.Wait {
	return exec.Wait{
		Rank: o.a.rank, Op: o.Seq, Kind: program.Recv, Peer: o.peer, Step: int(o.consumed),
		Done: int64(min(int(o.consumed)*o.chunk, o.Block)), Bytes: int64(o.Block),
	}
}
