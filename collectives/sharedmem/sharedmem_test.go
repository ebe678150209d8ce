package sharedmem

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/exec"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
)

// TestAnyOrder runs sequences of collectives in which ranks get ahead of each other. The order is random but fixed by a
// seed: one rank at a time takes one step of its operation, some ranks more seldom than others.
func TestAnyOrder(t *testing.T) {
	for _, ranks := range []int{2, 3, 5, 8} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%d/%d", ranks, seed), func(t *testing.T) {
				t.Parallel()
				g := newGroupOf(t, ranks, seed, []uint64{fewSlots, halfSlots, manySlots}[(int(seed)+ranks)%3])
				var jobs []*job
				for range 50 {
					j := &job{
						coll: collectives[g.rng.IntN(len(collectives))],
						typ:  []datatype.Type{datatype.Uint8, datatype.Int32, datatype.Int64}[g.rng.IntN(3)],
						op:   datatype.Op(g.rng.IntN(4)), root: g.rng.IntN(ranks),
						count: 1 + g.rng.IntN(1<<g.rng.IntN(16)), inPlace: g.rng.IntN(2) == 0,
					}
					g.bind(t, j)
					jobs = append(jobs, j)
				}
				g.drive(t, jobs)
				for _, j := range jobs {
					j.check(t)
				}
			})
		}
	}
}

// TestEdges runs sizes at the bounds of slots and pieces.
func TestEdges(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		ranks int
		slots uint64
	}{{2, manySlots}, {3, fewSlots}, {8, fewSlots}, {2, fewSlots}, {3, manySlots}, {8, halfSlots}} {
		ranks := of.ranks
		if testing.Short() && (ranks > 3 || ranks*int(of.slots) > 2*manySlots) {
			continue
		}
		g := newGroupOf(t, ranks, 1, of.slots)
		for _, coll := range collectives {
			for _, edge := range []int{inlineMax, inlineMax / ranks, 8 * line / ranks, smallRoom, smallRoom / ranks,
				middleRoom, middleRoom / ranks, flatMax(ranks), largeRoom, largeRoom / ranks} {
				for d := -1; d <= 1; d++ {
					if edge/8+d < 1 {
						continue
					}
					j := &job{coll: coll, typ: datatype.Int64, count: edge/8 + d, root: ranks - 1, inPlace: d == 0}
					g.bind(t, j)
					g.drive(t, []*job{j})
					j.check(t)
				}
			}
		}
	}
}

// TestScaledAndStreamed checks that contributions are scaled once, and that large results are complete.
func TestScaledAndStreamed(t *testing.T) {
	const ranks = 3
	g := newGroup(t, ranks, 2)
	for _, coll := range []schedule.Collective{schedule.AllReduce, schedule.Reduce, schedule.ReduceScatter} {
		for _, count := range []int{5, 300000} {
			for _, inPlace := range []bool{false, true} {
				j := &job{coll: coll, typ: datatype.Uint8, count: count, inPlace: inPlace}
				g.bind(t, j)
				for _, op := range j.ops {
					op.Scale, op.Factor = datatype.Scale(datatype.Uint8), 3
				}
				for _, want := range j.want {
					for i := range want {
						want[i] *= 3
					}
				}
				g.drive(t, []*job{j})
				j.check(t)
			}
		}
	}
	large := func(coll schedule.Collective, op datatype.Op, inPlace bool) {
		j := &job{coll: coll, typ: datatype.Int32, count: streamMin/4 + 1, root: 1, op: op, inPlace: inPlace}
		g.bind(t, j)
		g.drive(t, []*job{j})
		j.check(t)
	}
	for _, coll := range collectives {
		if !testing.Short() || coll == schedule.AllReduce {
			large(coll, datatype.Max, false)
		}
	}
	large(schedule.ReduceScatter, datatype.Sum, false) // its kernels store past the caches
	if !testing.Short() {
		large(schedule.ReduceScatter, datatype.Sum, true)
	}
}

// TestSameBits checks that all ranks have the same sums of floats, equal to those of a loop over the ranks in order.
func TestSameBits(t *testing.T) {
	for _, ranks := range []int{2, 5, 8} {
		g := newGroup(t, ranks, 3)
		for _, count := range []int{3, 1000, 50000} {
			j := &job{coll: schedule.AllReduce, typ: datatype.Float32, count: count}
			g.bind(t, j)
			for r := range j.in {
				f := unsafe.Slice((*float32)(pointer(j.in[r])), count)
				for i := range f {
					f[i] = g.rng.Float32() * float32(int(1)<<g.rng.IntN(20))
				}
			}
			g.drive(t, []*job{j})
			want := bytes.Clone(j.in[0])
			for r := 1; r < ranks; r++ {
				datatype.Reduce(datatype.Sum, datatype.Float32)(want, j.in[r])
			}
			for r := range ranks {
				if !bytes.Equal(j.out[r], want) {
					t.Fatalf("%v on %d ranks: rank %d differs", j, ranks, r)
				}
			}
		}
	}
}

// TestOtherCalls: if a rank makes another call, the next rank that reads from it gets an error. It does so even if no
// rank had to read when the call was made.
func TestOtherCalls(t *testing.T) {
	run := func(g *group, jobs ...*job) (errs []error) {
		for r := range g.arenas {
			for _, j := range jobs {
				for range 3 {
					if _, done, err := j.ops[r].Poll(); err != nil {
						errs = append(errs, err)
						break
					} else if done {
						break
					}
				}
			}
		}
		return errs
	}
	t.Run("signature", func(t *testing.T) {
		g := newGroup(t, 2, 1)
		j := &job{coll: schedule.AllReduce, typ: datatype.Int32, count: 4}
		g.bind(t, j)
		j.ops[1].Signature++
		errs := run(g, j)
		const text = "rank 0 made a different call than rank 1"
		if len(errs) == 0 || !errors.Is(errs[0], exec.ErrSignature) || !strings.Contains(errs[0].Error(), text) {
			t.Errorf("%v", errs)
		}
	})
	t.Run("sequence", func(t *testing.T) {
		g := newGroup(t, 2, 1)
		g.seq[1]++
		j := &job{coll: schedule.AllReduce, typ: datatype.Int32, count: 4}
		g.bind(t, j)
		if errs := run(g, j); len(errs) == 0 || !errors.Is(errs[0], exec.ErrSequence) {
			t.Errorf("%v", errs)
		}
	})
	t.Run("past", func(t *testing.T) {
		g := newGroup(t, 2, 1)
		// Both ranks are roots of a, and so do not wait.
		a := &job{coll: schedule.Broadcast, typ: datatype.Int32, count: 4}
		b := &job{coll: schedule.AllReduce, typ: datatype.Int32, count: 4}
		g.bind(t, a)
		buf := make([]byte, 16)
		a.ops[1].Root, a.ops[1].Send, a.ops[1].Signature = 1, pointer(buf), 77
		g.bind(t, b)
		if errs := run(g, a, b); len(errs) == 0 || !errors.Is(errs[0], exec.ErrSequence) {
			t.Errorf("%v", errs)
		}
	})
}

// TestClosed checks that data which a rank stored before it closed its end is used, and that waiting for more is an
// error.
func TestClosed(t *testing.T) {
	g := newGroup(t, 3, 1)
	j := &job{coll: schedule.AllReduce, typ: datatype.Int32, count: 4}
	k := &job{coll: schedule.AllReduce, typ: datatype.Int32, count: 4}
	g.bind(t, j)
	g.bind(t, k)
	for r := range 3 {
		_, _, _ = j.ops[(r+1)%3].Poll()
	}
	g.ends[0].closed[2] = true
	for r := range 2 {
		if _, done, err := j.ops[r].Poll(); err != nil || !done {
			t.Fatalf("rank %d: done %v, %v", r, done, err)
		}
	}
	var err error
	for range 10 {
		for r := range 2 {
			if err == nil {
				_, _, err = k.ops[r].Poll()
			}
		}
	}
	if !errors.Is(err, transport.ErrPeerLost) || !strings.Contains(err.Error(), "rank 2") {
		t.Errorf("got %v", err)
	}
	if w := k.ops[0].Waiting(); w.Peer != 2 || w.Op != 2 || w.Bytes != 16 {
		t.Errorf("waits for %v", w)
	}
}

// TestClosedInTurn checks that the root of a gather uses the chunk of each rank that stores it after the root has
// looked for it, and then closes its end.
func TestClosedInTurn(t *testing.T) {
	g := newGroup(t, 4, 1)
	j := &job{coll: schedule.Gather, typ: datatype.Int32, count: 4}
	g.bind(t, j)
	for r := 1; r < 4; r++ {
		g.ends[0].closed[r] = true
		if _, done, err := j.ops[0].Poll(); err != nil || done {
			t.Fatalf("waiting for rank %d: done %v, %v", r, done, err)
		}
		_, _, _ = j.ops[r].Poll()
	}
	if _, done, err := j.ops[0].Poll(); err != nil || !done {
		t.Fatalf("done %v, %v", done, err)
	}
	j.check(t)
}

// TestTooLittleMemory checks that too little memory gives no arena.
func TestTooLittleMemory(t *testing.T) {
	if New(&end{mem: make([]byte, 3*perRank(fewSlots)-1)}, 3, 0) != nil || New(&end{}, 2, 1) != nil {
		t.Error("an arena without its memory")
	}
}

// TestRingsBeforeItWaits checks that a rank rings after each step that another rank may wait for.
func TestRingsBeforeItWaits(t *testing.T) {
	g := newGroup(t, 2, 1)
	j := &job{coll: schedule.AllReduce, typ: datatype.Int32, count: 1 << 18}
	g.bind(t, j)
	for i := range 1000 {
		op := j.ops[i%2]
		before := *g.ends[0].rung
		if moved, done, err := op.Poll(); err != nil {
			t.Fatal(err)
		} else if done {
			return
		} else if moved && *g.ends[0].rung == before {
			t.Fatal("made progress, and did not ring")
		}
	}
	t.Fatal("never done")
}

func TestAllocates(t *testing.T) {
	g := newGroup(t, 2, 1)
	for _, coll := range collectives {
		for _, count := range []int{2, 1000, 1 << 20} {
			j := &job{coll: coll, typ: datatype.Float32, count: count}
			g.bind(t, j)
			n := testing.AllocsPerRun(3, func() {
				for r, op := range j.ops {
					call := op.Call
					call.Seq++
					op.Bind(g.arenas[r], &call)
				}
				g.finish(t, j)
			})
			if n != 0 {
				t.Errorf("%v allocates %v times", j, n)
			}
			for r := range g.seq {
				g.seq[r] = j.ops[r].Seq
			}
		}
	}
}
