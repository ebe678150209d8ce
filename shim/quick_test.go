package shim

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/shared"
)

// visitor does what C does with a gate: it begins calls whose contribution is in the slot's header, and
// leaves the rest to Go. It relies on ranks that are never far from each other.
type visitor struct {
	gate   *Gate
	handle uint64
}

func visit(t *testing.T, w *world) []*visitor {
	t.Helper()
	gates := make([]Gate, len(w.comms))
	all := make([]*visitor, len(w.comms))
	for r, c := range w.comms {
		all[r] = &visitor{&gates[r], uint64(100 + r)}
		if !c.UseGate(all[r].gate, all[r].handle) {
			t.Fatalf("rank %d has nothing for the gate", r)
		}
	}
	return all
}

// call makes a call of one int32, in C as far as it comes there, and reports whether it came to begin it.
func (v *visitor) call(c *Call) (quick bool, err error) {
	if !v.gate.Word.CompareAndSwap(v.handle, 1) {
		return false, Run([]Call{*c})
	}
	q := v.gate.Quick.Load()
	i := v.recipe(q, c)
	if i < 0 || v.gate.Shut.Load() != 0 {
		v.gate.Word.Store(v.handle)
		return false, Run([]Call{*c})
	}
	v.begin(q, uint32(i), c)
	q.Begun = 1
	v.gate.Word.Store(0)
	return true, RunBegun([]Call{*c})
}

func (v *visitor) recipe(q *shared.Quick, c *Call) int {
	for i, r := range recipes(q) {
		if r.Kind == uint32(c.Kind) && r.Count == c.Count && r.Peer == c.Peer && r.Inline == 1 {
			return i
		}
	}
	return -1
}

func recipes(q *shared.Quick) []shared.QuickRecipe { return unsafe.Slice(q.Recipes, q.Used) }

func (v *visitor) begin(q *shared.Quick, i uint32, c *Call) {
	r := &recipes(q)[i]
	ring := &q.Rings[r.Ring]
	k := ring.Next
	ring.Next++
	q.Seq++
	mix := func(x uint64) uint64 { x *= 0x9e3779b97f4a7c15; return x ^ x>>29 }
	q.Chain = mix(mix(q.Chain^q.Seq) ^ uint64(r.Signature))
	n := q.Head + 1
	log := &unsafe.Slice(q.Log, q.LogMask+1)[n&q.LogMask]
	atomic.StoreUint64(&log.Seq, q.Seq)
	atomic.StoreUint32(&log.Recipe, i)
	atomic.StoreUint32(&log.Done, 0)
	atomic.StoreInt64(&log.Begin, int64(n))
	atomic.StoreInt64(&log.End, int64(n))
	atomic.StoreUint64(&q.Head, n)
	atomic.AddUint64(&q.CallCounts[r.Kind], 1)

	slot := unsafe.Add(q.Memory, int(q.Rank*q.PerRank+ring.At)+int(k&ring.Mask)*int(ring.Slot))
	if r.Lay == shared.LayBlock {
		*(*int32)(unsafe.Add(slot, q.Inline)) = *(*int32)(c.Send)
	}
	*(*uint64)(unsafe.Add(slot, 8)), *(*uint64)(unsafe.Add(slot, 16)) = q.Seq, q.Chain
	*(*uint32)(unsafe.Add(slot, 24)) = r.Signature
	(*atomic.Uint64)(slot).Store(k + 1)
}

func allReduceOf(c *Comm, x []int32) *Call {
	call := allReduce(c, make([]float32, 1))
	call.Type, call.Count, call.Send, call.Recv = datatype.Int32, 1, unsafe.Pointer(&x[0]), unsafe.Pointer(&x[1])
	return &call
}

// TestQuickCalls: calls that C begins and Go ends, and some that Go alone makes, are one sequence, and the
// flight recorder has them all, whoever looks into it meanwhile.
func TestQuickCalls(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := newWorld(t, 2)
	visitors := visit(t, w)
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range w.comms {
				if _, err := c.flightDump(); err != nil {
					t.Error(err)
				}
				if g := c.flight.glance(); g.op.number > 0 && g.op.seq == 0 {
					t.Errorf("rank %d: operation %d is none of its", c.Rank(), g.op.number)
				}
			}
			time.Sleep(time.Millisecond)
		}
	}()
	const rounds = 1000
	var quick [2]int
	errs := concurrently(t, 2, func(r int) error {
		c, x := w.comms[r], make([]int32, 3)
		for round := range int32(rounds) {
			x[0] = round + int32(r)
			call := allReduceOf(c, x)
			if (int(round)+r)%7 == 0 {
				if err := Run([]Call{*call}); err != nil {
					return err
				}
			} else if q, err := visitors[r].call(call); err != nil {
				return err
			} else if q {
				quick[r]++
			}
			if x[1] != 2*round+1 {
				t.Errorf("rank %d round %d: %d", r, round, x[1])
			}
			b := Call{Comm: c, Kind: CallBroadcast, Type: datatype.Int32, Count: 1, Send: unsafe.Pointer(&x[0]), Recv: unsafe.Pointer(&x[2])}
			if q, err := visitors[r].call(&b); err != nil {
				return err
			} else if q {
				quick[r]++
			}
		}
		return nil
	})
	close(stop)
	<-watched
	for r, c := range w.comms {
		if errs[r] != nil {
			t.Fatalf("rank %d: %v", r, errs[r])
		}
		if quick[r] < rounds {
			t.Errorf("rank %d: %d of %d calls began at the gate", r, quick[r], 2*rounds)
		}
		g := c.flight.glance()
		if g.counts[CallAllReduce] != rounds || g.counts[CallBroadcast] != rounds || g.op.number != 2*rounds || g.last.seq != 2*rounds || g.running {
			t.Errorf("rank %d: %d and %d calls counted, operation %d is the last, its number among collectives %d, running %v",
				r, g.counts[CallAllReduce], g.counts[CallBroadcast], g.op.number, g.last.seq, g.running)
		}
		for seq := uint64(2*rounds - 100); seq <= 2*rounds; seq++ {
			want := CallAllReduce
			if seq%2 == 0 {
				want = CallBroadcast
			}
			if s, ok := c.flight.find(seq); !ok || s.kind != want {
				t.Errorf("rank %d: operation %d is %v, %v", r, seq, s.kind, ok)
			}
		}
	}
}

// TestQuickEnds: what C has begun ends with the communicator, and nobody comes in afterwards.
func TestQuickEnds(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := newWorld(t, 2)
	visitors := visit(t, w)
	w.must(func(c *Comm) error { return Run([]Call{*allReduceOf(c, make([]int32, 2))}) })
	v, c := visitors[0], w.comms[0]
	ended := make(chan error)
	go func() {
		quick, err := v.call(allReduceOf(c, make([]int32, 2)))
		if !quick {
			t.Error("the call did not begin at the gate")
		}
		ended <- err
	}()
	for c.flight.glance().last.seq < 2 {
		time.Sleep(time.Millisecond)
	}
	if v.gate.Word.Load() == v.handle {
		t.Error("the gate is open while a call is half done")
	}
	if err := c.Abort(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrAborted) {
		t.Errorf("the call ends with %v", err)
	}
	if v.gate.Word.Load() != 0 || v.gate.Quick.Load() != nil || v.gate.Owner.Load() != 0 {
		t.Error("the gate is still somebody's")
	}
	other := visitors[1]
	<-w.comms[1].poisonCh
	if quick, err := other.call(allReduceOf(w.comms[1], make([]int32, 2))); quick || !errors.Is(err, ErrAborted) {
		t.Errorf("the other rank: at the gate %v, %v", quick, err)
	}
}

// TestGateOfAnother: a gate that has not been given back stays whose it is.
func TestGateOfAnother(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	a, b := newWorld(t, 2), newWorld(t, 2)
	var g Gate
	if !a.comms[0].UseGate(&g, 1<<16) || b.comms[0].UseGate(&g, 2<<16) || g.Owner.Load() != 1<<16 {
		t.Error("the second communicator has the gate of the first")
	}
	if err := a.comms[0].Destroy(); err != nil {
		t.Fatal(err)
	}
	if !b.comms[0].UseGate(&g, 2<<16) || g.Word.Load() != 2<<16 {
		t.Error("a gate that was given back is not given again")
	}
}
