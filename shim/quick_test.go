package shim_test

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/sharedmem"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/host"
	"lightpath/shim/recorder"
	"lightpath/shim/shimtest"
)

// visitor does what C does with a gate: it begins calls whose contribution is in the slot's header, and
// leaves the rest to Go. It relies on ranks that are never far from each other.
type visitor struct {
	gate   *comm.Gate
	handle uint64
}

func visit(t *testing.T, w *shimtest.World) []*visitor {
	t.Helper()
	gates := make([]comm.Gate, len(w.Comms))
	all := make([]*visitor, len(w.Comms))
	for r, c := range w.Comms {
		all[r] = &visitor{&gates[r], uint64(100 + r)}
		if !host.UseGate(c, all[r].gate, all[r].handle) {
			t.Fatalf("rank %d has nothing for the gate", r)
		}
	}
	return all
}

// call makes a call of one int32, in C as far as it comes there, and reports whether it came to begin it.
func (v *visitor) call(c *calls.Call) (quick bool, err error) {
	if !v.gate.Word.CompareAndSwap(v.handle, 1) {
		return false, shim.Run([]calls.Call{*c})
	}
	q := v.gate.Quick.Load()
	i := v.recipe(q, c)
	if i < 0 || v.gate.Shut.Load() != 0 {
		v.gate.Word.Store(v.handle)
		return false, shim.Run([]calls.Call{*c})
	}
	v.begin(q, uint32(i), c)
	q.Begun = 1
	v.gate.Word.Store(0)
	return true, host.RunBegun([]calls.Call{*c})
}

func (v *visitor) recipe(q *sharedmem.Quick, c *calls.Call) int {
	for i, r := range recipes(q) {
		if r.Kind == uint32(c.Kind) && r.Count == c.Count && r.Peer == c.Peer && r.IsInline == 1 {
			return i
		}
	}
	return -1
}

func recipes(q *sharedmem.Quick) []sharedmem.QuickRecipe { return unsafe.Slice(q.Recipes, q.Used) }

func (v *visitor) begin(q *sharedmem.Quick, i uint32, c *calls.Call) {
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
	if r.Fill == sharedmem.FillBlock {
		*(*int32)(unsafe.Add(slot, q.InlineAt)) = *(*int32)(c.Send)
	}
	*(*uint64)(unsafe.Add(slot, 8)), *(*uint64)(unsafe.Add(slot, 16)) = q.Seq, q.Chain
	*(*uint32)(unsafe.Add(slot, 24)) = r.Signature
	(*atomic.Uint64)(slot).Store(k + 1)
}

func allReduceOf(c *shim.Comm, x []int32) *calls.Call {
	call := shimtest.AllReduce(c, make([]float32, 1))
	call.Type, call.Count, call.Send, call.Recv = datatype.Int32, 1, unsafe.Pointer(&x[0]), unsafe.Pointer(&x[1])
	return &call
}

// TestQuickCalls checks that calls that begin in C and end in Go, and calls made by Go alone, are one sequence. The
// flight recorder has them all, also for a reader in between.
func TestQuickCalls(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := shimtest.NewWorld(t, 2)
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
			for _, c := range w.Comms {
				if _, err := recorder.Dump(c); err != nil {
					t.Error(err)
				}
				if g := recorder.Of(c).Snapshot(); g.Op.Number > 0 && g.Op.Seq == 0 {
					t.Errorf("rank %d: operation %d is none of its", c.Rank, g.Op.Number)
				}
			}
			time.Sleep(time.Millisecond)
		}
	}()
	const rounds = 1000
	var quick [2]int
	errs := shimtest.Concurrently(t, 2, func(r int) error {
		c, x := w.Comms[r], make([]int32, 3)
		for round := range int32(rounds) {
			x[0] = round + int32(r)
			call := allReduceOf(c, x)
			if (int(round)+r)%7 == 0 {
				if err := shim.Run([]calls.Call{*call}); err != nil {
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
			b := calls.Call{Comm: c, Kind: calls.Broadcast, Type: datatype.Int32, Count: 1, Send: unsafe.Pointer(&x[0]),
				Recv: unsafe.Pointer(&x[2])}
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
	for r, c := range w.Comms {
		if errs[r] != nil {
			t.Fatalf("rank %d: %v", r, errs[r])
		}
		if quick[r] < rounds {
			t.Errorf("rank %d: %d of %d calls began at the gate", r, quick[r], 2*rounds)
		}
		g := recorder.Of(c).Snapshot()
		if g.Counts[calls.AllReduce] != rounds || g.Counts[calls.Broadcast] != rounds || g.Op.Number != 2*rounds ||
			g.Last.Seq != 2*rounds || g.Running {
			t.Errorf("rank %d: %d and %d calls counted, operation %d is the last, its number among collectives %d, running %v",
				r, g.Counts[calls.AllReduce], g.Counts[calls.Broadcast], g.Op.Number, g.Last.Seq, g.Running)
		}
		for seq := uint64(2*rounds - 100); seq <= 2*rounds; seq++ {
			want := calls.AllReduce
			if seq%2 == 0 {
				want = calls.Broadcast
			}
			if s, ok := recorder.Of(c).Find(seq); !ok || s.Kind != want {
				t.Errorf("rank %d: operation %d is %v, %v", r, seq, s.Kind, ok)
			}
		}
	}
}

// TestQuickTotals checks that calls that C has made are summed up once, also when C forgets their recipe.
func TestQuickTotals(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	t.Setenv("LIGHTPATH_METRICS", t.TempDir())
	w := shimtest.NewWorld(t, 2)
	visit(t, w)
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{*allReduceOf(c, make([]int32, 2))}) })
	f, q := recorder.Of(w.Comms[0]), w.Comms[0].Turn.Shared()
	before := f.Totals()
	if len(before) != 1 || before[0].Count != 1 || q.Timed != 2 || q.Used != 1 {
		t.Fatalf("%+v, timed %d, %d recipes", before, q.Timed, q.Used)
	}
	check := func(count uint64, ns float64) {
		t.Helper()
		now := f.Totals()
		spent := now[0].Seconds - before[0].Seconds
		if len(now) != 1 || now[0].Count != 1+count || now[0].Bytes != 4*(1+count) || math.Abs(spent-ns*1e-9) > 1e-12 {
			t.Errorf("%+v, before C's %d calls %+v", now, count, before)
		}
	}
	r := &recipes(q)[0]
	for i := range uint64(3) {
		atomic.AddUint64(&r.Calls, 5)
		atomic.AddUint64(&r.Nanoseconds, 700)
		check(5*(i+1), 700*float64(i+1))
	}
	atomic.AddUint64(&r.Calls, 1)
	for i := range uint64(1024) { // one more than there is room for
		f.Learn(recorder.Recipe{Shape: calls.Shape{Kind: calls.AllReduce, Count: 1}}, &sharedmem.QuickRecipe{Count: 2 + i})
	}
	if q.Used != 1 {
		t.Fatalf("%d recipes", q.Used)
	}
	check(16, 2100)
}

// TestQuickEnds checks that calls begun by C end with the communicator, and that no call enters afterwards.
func TestQuickEnds(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := shimtest.NewWorld(t, 2)
	visitors := visit(t, w)
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{*allReduceOf(c, make([]int32, 2))}) })
	v, c := visitors[0], w.Comms[0]
	ended := make(chan error)
	go func() {
		quick, err := v.call(allReduceOf(c, make([]int32, 2)))
		if !quick {
			t.Error("the call did not begin at the gate")
		}
		ended <- err
	}()
	for recorder.Of(c).Snapshot().Last.Seq < 2 {
		time.Sleep(time.Millisecond)
	}
	if v.gate.Word.Load() == v.handle {
		t.Error("the gate is open while a call is half done")
	}
	if err := c.Abort(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, errdefs.ErrAborted) {
		t.Errorf("the call ends with %v", err)
	}
	if v.gate.Word.Load() != 0 || v.gate.Quick.Load() != nil || v.gate.Owner.Load() != 0 {
		t.Error("the gate is still somebody's")
	}
	other := visitors[1]
	<-w.Comms[1].FailedChan()
	if quick, err := other.call(allReduceOf(w.Comms[1], make([]int32, 2))); quick || !errors.Is(err, errdefs.ErrAborted) {
		t.Errorf("the other rank: at the gate %v, %v", quick, err)
	}
}

// TestGateOfAnother: a gate that has not been given back stays whose it is.
func TestGateOfAnother(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	a, b := shimtest.NewWorld(t, 2), shimtest.NewWorld(t, 2)
	var g comm.Gate
	if !host.UseGate(a.Comms[0], &g, 1<<16) || host.UseGate(b.Comms[0], &g, 2<<16) || g.Owner.Load() != 1<<16 {
		t.Error("the second communicator has the gate of the first")
	}
	require.NoError(t, a.Comms[0].Destroy())
	if !host.UseGate(b.Comms[0], &g, 2<<16) || g.Word.Load() != 2<<16 {
		t.Error("a gate that was given back is not given again")
	}
}

// TestTaught checks the operators that C knows, and that a call of a known shape costs nothing extra if it reaches Go.
// Rank 0 waits for no rank: its reduction is for rank 1.
func TestTaught(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := shimtest.NewWorld(t, 2)
	visit(t, w)
	scalar, later := float32(3), float32(5)
	var ops [2][2]int32
	for r, c := range w.Comms {
		for i, s := range []*float32{&scalar, &later} {
			op, err := calls.CreatePreMulSum(c, datatype.Float32, unsafe.Pointer(s), s == &later)
			require.NoError(t, err)
			ops[r][i] = op
		}
	}
	x := make([]float32, 4)
	call := func(r int, typ datatype.Type, op datatype.Op, number int32) []calls.Call {
		return []calls.Call{{
			Comm: w.Comms[r], Kind: calls.Reduce, Type: typ, Op: op, Peer: 1, Count: 1, Operator: number,
			Send: unsafe.Pointer(&x[2*r]), Recv: unsafe.Pointer(&x[2*r+1]), Scalar: unsafe.Pointer(&scalar),
		}}
	}
	all := func(r int) [][]calls.Call {
		return [][]calls.Call{
			call(r, datatype.Float32, datatype.Avg, 0), call(r, datatype.Int32, datatype.Avg, 0),
			call(r, datatype.Float32, datatype.Max, 0),
			call(r, datatype.Float32, calls.OpPreMulSum, ops[r][0]), call(r, datatype.Float32, calls.OpPreMulSum, ops[r][1]),
		}
	}
	run := func(r int) {
		for _, calls := range all(r) {
			require.NoError(t, shim.Run(calls))
		}
	}
	run(0)
	run(1)
	element := func(f float32) [8]byte { return device.ScaleBy(datatype.Float32, float64(f)).Factor }
	want := []sharedmem.QuickRecipe{
		{Op: int32(datatype.Avg), Scales: 1, Factor: element(0.5)}, {Op: int32(datatype.Avg), Divides: 1},
		{Op: int32(datatype.Max), Combine: uint8(datatype.Max)},
		{Op: ops[0][0], Scales: 1, Factor: element(3)}, {Op: ops[0][1], Scales: 1, FactorAt: unsafe.Pointer(&later)},
	}
	q := w.Comms[0].Turn.Shared()
	known := recipes(q)
	if len(known) != len(want) {
		t.Fatalf("%d recipes of %d calls", len(known), len(want))
	}
	for i, r := range known {
		if w := want[i]; r.Op != w.Op || r.Combine != w.Combine || r.Scales != w.Scales || r.Divides != w.Divides ||
			r.Factor != w.Factor || r.FactorAt != w.FactorAt {
			t.Errorf("call %d: %+v, want %+v", i, r, w)
		}
	}
	const runs = 5 // fewer calls than there are slots
	group := all(0)
	n := testing.AllocsPerRun(runs, func() {
		for _, c := range group {
			require.NoError(t, shim.Run(c))
		}
	})
	if n != 0 && !shimtest.RaceEnabled {
		t.Errorf("%v allocations in calls that C knows", n)
	}
	if len(recipes(q)) != len(want) {
		t.Errorf("%d recipes after calls that are known", q.Used)
	}
	for range runs + 1 {
		run(1)
	}
	// An operator that ends takes the recipes of the others along, which are learnt again; its own is not.
	require.NoError(t, calls.DestroyOp(w.Comms[0], ops[0][0]))
	run(0)
	run(1)
	if known = recipes(q); len(known) != len(want)+1 || known[len(want)].Op != ops[0][1] ||
		known[len(want)].Ended != q.OperatorsEnded() {
		t.Errorf("%d recipes after the end of an operator, want %d", len(known), len(want)+1)
	}
}
