package sharedmem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/oracle"
	"lightpath/collectives/transport"
)

// end is a rank's endpoint, over memory of one process.
type end struct {
	transport.Endpoint // nil: an arena calls only the methods below
	mem                []byte
	closed             []bool
	rung               *int
}

func (e *end) Shared() []byte         { return e.mem }
func (e *end) Ring()                  { *e.rung++ }
func (e *end) Bells([]uintptr)        {}
func (e *end) Closed(rank int) bool   { return e.closed[rank] }
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// group is the ranks of a communicator, all run by one goroutine.
type group struct {
	arenas []*Arena
	ends   []*end
	seq    []uint64
	rng    *rand.Rand
}

func newGroup(t testing.TB, ranks int, seed uint64) *group {
	t.Helper()
	return newGroupOf(t, ranks, seed, fewSlots)
}

// newGroupOf makes a group with this number of large slots, also where the machine would get another.
func newGroupOf(t testing.TB, ranks int, seed, slots uint64) *group {
	t.Helper()
	size := ranks * perRank(slots)
	mem := make([]byte, size+line)
	mem = mem[-uintptr(pointer(mem))%line:][:size]
	g := &group{rng: rand.New(rand.NewPCG(seed, uint64(ranks))), seq: make([]uint64, ranks)}
	closed, rung := make([]bool, ranks), 0
	for r := range ranks {
		e := &end{mem: mem, closed: closed, rung: &rung}
		a := New(e, ranks, r)
		if a == nil {
			t.Fatalf("no arena of %d ranks in %d bytes", ranks, len(mem))
		}
		g.ends, g.arenas = append(g.ends, e), append(g.arenas, a)
	}
	return g
}

// job is one collective of all ranks.
type job struct {
	coll    schedule.Collective
	typ     datatype.Type
	op      datatype.Op
	root    int
	count   int
	inPlace bool
	ops     []*Op
	in, out [][]byte // indexed by rank
	want    [][]byte
}

func (j *job) String() string {
	return fmt.Sprintf("%v of %d %v, %v, root %d, in place %v", j.coll, j.count, j.typ, j.op, j.root, j.inPlace)
}

var collectives = []schedule.Collective{
	schedule.AllReduce, schedule.AllGather, schedule.ReduceScatter, schedule.AllToAll,
	schedule.Broadcast, schedule.Reduce, schedule.Gather, schedule.Scatter,
}

// blocks returns the number of blocks of count elements in the buffers of a rank.
func (j *job) blocks(rank, ranks int) (send, recv int) {
	send, recv = 1, 1
	switch j.coll {
	case schedule.AllGather:
		recv = ranks
	case schedule.ReduceScatter:
		send = ranks
	case schedule.AllToAll:
		send, recv = ranks, ranks
	case schedule.Broadcast:
		if rank != j.root {
			send = 0
		}
	case schedule.Reduce:
		if rank != j.root {
			recv = 0
		}
	case schedule.Gather:
		if recv = ranks; rank != j.root {
			recv = 0
		}
	case schedule.Scatter:
		if send = ranks; rank != j.root {
			send = 0
		}
	}
	return send, recv
}

// bind makes the buffers of a job, its operations and the results it must have.
func (g *group) bind(t testing.TB, j *job) {
	t.Helper()
	n, block := len(g.arenas), j.count*j.typ.Size()
	inputs := make([][]byte, n)
	for r := range n {
		send, recv := j.blocks(r, n)
		inputs[r] = make([]byte, send*block, send*block+8)
		for i := 0; i < send*block; i += 8 {
			binary.NativeEndian.PutUint64(inputs[r][i:i+8:i+8], g.rng.Uint64())
		}
		in, out := bytes.Clone(inputs[r][:send*block]), bytes.Repeat([]byte{0xa5}, recv*block)
		if j.inPlace && send > 0 && recv > 0 {
			switch {
			case send == recv:
				out = in
			case send < recv:
				copy(out[r*block:], in)
				in = out[r*block:][:block]
			default:
				out = in[r*block:][:block]
			}
		}
		j.in, j.out = append(j.in, in), append(j.out, out)
		g.seq[r]++
		op := new(Op)
		op.Bind(g.arenas[r], &Call{
			Collective: j.coll, Root: j.root, Block: block, Send: pointer(in), Recv: pointer(out), InPlace: j.inPlace,
			Combine: datatype.Combine(j.op, j.typ), CombineStream: datatype.CombineStream(j.op, j.typ),
			Seq: g.seq[r], Signature: uint32(j.coll)<<16 | uint32(j.count),
		})
		j.ops = append(j.ops, op)
	}
	// The types are integers, so sums do not depend on the order.
	full := inputs
	if j.coll == schedule.Broadcast || j.coll == schedule.Scatter {
		full = slices.Clone(inputs)
		for r := range full {
			full[r] = inputs[j.root] // the oracle reads the root's input only
		}
	}
	want, err := oracle.Expected(oracle.Call{Collective: j.coll, Type: j.typ, Op: j.op, Root: j.root}, full)
	if err != nil {
		t.Fatal(err)
	}
	j.want = want
}

func (j *job) check(t testing.TB) {
	t.Helper()
	for r := range j.ops {
		if len(j.out[r]) > 0 && !bytes.Equal(j.out[r], j.want[r]) {
			at := 0
			for j.out[r][at] == j.want[r][at] {
				at++
			}
			t.Fatalf("%v: rank %d differs at byte %d of %d", j, r, at, len(j.out[r]))
		}
	}
}

// drive runs jobs on all ranks, in an order of ranks that is random. Each rank runs the jobs in order.
func (g *group) drive(t testing.TB, jobs []*job) {
	t.Helper()
	n := len(g.arenas)
	at := make([]int, n)
	for left, idle := n*len(jobs), 0; left > 0; idle++ {
		if idle > 1<<20 {
			t.Fatalf("no rank makes progress: they are in jobs %v", at)
		}
		r := g.rng.IntN(n)
		if g.rng.IntN(3) == 0 {
			r = g.rng.IntN(1 + r) // lower ranks more often
		}
		if at[r] == len(jobs) {
			continue
		}
		op := jobs[at[r]].ops[r]
		if !op.started {
			op.begin()
		}
		moved, err := op.step()
		if err != nil {
			t.Fatalf("%v: rank %d: %v", jobs[at[r]], r, err)
		}
		if moved {
			idle = 0
		}
		if op.finished() {
			at[r]++
			left--
		}
	}
}

// finish polls all ranks by turns until a job is done.
func (g *group) finish(t testing.TB, j *job) {
	for left := len(j.ops); left > 0; {
		left = len(j.ops)
		for _, op := range j.ops {
			done := op.finished()
			if !done {
				var err error
				if _, done, err = op.Poll(); err != nil {
					t.Fatal(err)
				}
			}
			if done {
				left--
			}
		}
	}
}
