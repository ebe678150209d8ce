package exec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/inproc"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// team is a set of ranks that one goroutine drives.
type team struct {
	c     *programtest.Case
	tasks []*Task
	out   [][]byte
}

// assemble binds the program of every rank. edit may change the call of a rank first.
func assemble(t testing.TB, c *programtest.Case, progs []*program.Program, inPlace bool,
	edit func(r int, call *Call)) *team {
	t.Helper()
	tm := &team{c: c}
	for r, p := range progs {
		in, out := c.Buffers(r, inPlace)
		scratch := make([]byte, p.ScratchBytes)
		call := Call{
			Program: p, Comm: 7, Op: 3, Reduce: programtest.AddInto, Scale: multiply, Factor: 3,
			Buffers: [schedule.NumBuffers]Buffer{BufferOf(in), BufferOf(out), BufferOf(scratch)},
		}
		edit(r, &call)
		task := new(Task)
		task.Trace(r == 0)
		require.NoError(t, task.Bind(call))
		tm.tasks, tm.out = append(tm.tasks, task), append(tm.out, out)
	}
	return tm
}

// multiply is the scale function of the cases.
func multiply(dst, src []byte, factor float64) {
	for i := 0; i < len(src); i += 4 {
		binary.LittleEndian.PutUint32(dst[i:], binary.LittleEndian.Uint32(src[i:])*uint32(factor))
	}
}

func (tm *team) verify(t testing.TB) {
	t.Helper()
	for r, want := range tm.c.Want {
		if want != nil && !bytes.Equal(tm.out[r], want) {
			t.Fatalf("rank %d: got %x\nwant %x", r, tm.out[r], want)
		}
	}
	events := tm.tasks[0].Events()
	if n := tm.tasks[0].call.Program.Instructions(); len(events) != n {
		t.Fatalf("%d events of %d instructions", len(events), n)
	}
	for id, e := range events {
		if e.Kind != program.Reconfigure && (e.Start == 0 || e.End < e.Start) {
			t.Fatalf("instruction %d has times %v", id, e)
		}
	}
}

func schedules(t *testing.T, n int, f func(t *testing.T, s *schedule.Schedule, rng *rand.Rand)) {
	t.Helper()
	for c := schedule.Collective(0); c < schedule.NumCollectives; c++ {
		for i, a := range schedule.Algorithms(c) {
			if !schedule.Defined(c, a, n) {
				continue
			}
			s, err := schedule.Build(c, a, n, n-1)
			require.NoError(t, err)
			t.Run(fmt.Sprintf("%v/%s/%d", c, a, n), func(t *testing.T) {
				f(t, s, rand.New(rand.NewPCG(uint64(n), uint64(c)<<8|uint64(i))))
			})
		}
	}
}

var patience = &Options{Timeout: time.Minute, Yield: 1}

// TestPacket runs every schedule over packet planes that shorten, refuse and delay frames, and checks the results.
func TestPacket(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		schedules(t, n, func(t *testing.T, s *schedule.Schedule, rng *rand.Rand) {
			planes := 1 + rng.IntN(3)
			endpoints := network(t, n, planes, rng.Uint64())
			inPlace := rng.IntN(2) == 0
			count := []int64{1, 7, 300}[rng.IntN(3)]
			args := program.Args{Planes: planes, Count: count, ElemSize: 4, InPlace: inPlace, MinPiece: 64}
			scale := uint32(1)
			if s.Collective.Reduces() && rng.IntN(2) == 0 {
				scale, args.Scale = 3, true
			}
			progs, err := lowerAll(s, nil, args)
			require.NoError(t, err)
			tm := assemble(t, programtest.NewCase(s, count, scale, rng.Uint64()), progs, inPlace,
				func(r int, c *Call) { c.Endpoint = endpoints[r] })
			require.NoError(t, Run(tm.tasks, patience))
			tm.verify(t)
		})
	}
}

// network is the in-process transport with small rings, behind faults.
func network(t *testing.T, n, planes int, seed uint64) []transport.Endpoint {
	t.Helper()
	endpoints, err := inproc.NewGroup(n, planes, inproc.Options{Slots: 4, Payload: 64})
	require.NoError(t, err)
	for r := range endpoints {
		e := endpoints[r]
		t.Cleanup(func() { _ = e.Close() })
		endpoints[r] = transporttest.WithFaults(e, seed+uint64(r), transporttest.Faults{Short: 0.3, Refuse: 0.3, Delay: 0.3})
	}
	return endpoints
}

// runsOptical runs a schedule on optical planes: its results are correct, and no frame meets a moving circuit.
func runsOptical(t *testing.T, s *schedule.Schedule, rng *rand.Rand, steered bool) {
	t.Helper()
	tm, f := optical(t, s, rng, steered)
	if err := Run(tm.tasks, patience); err != nil {
		for _, task := range tm.tasks {
			w, _ := task.Waiting()
			t.Logf("rank %d: %v", task.prog.Rank, w)
		}
		t.Fatal(err)
	}
	if f.lost != nil {
		t.Fatal(f.lost)
	}
	tm.verify(t)
}

// TestOptical runs every schedule on optical planes with random plans that split, forward and reconfigure. Rings have
// two slots.
func TestOptical(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		schedules(t, n, func(t *testing.T, s *schedule.Schedule, rng *rand.Rand) {
			runsOptical(t, s, rng, false)
		})
	}
}

// TestSteered is like the test of optical planes, with forwarding by the planes.
func TestSteered(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		schedules(t, n, func(t *testing.T, s *schedule.Schedule, rng *rand.Rand) {
			for range 3 {
				runsOptical(t, s, rng, true)
			}
		})
	}
}

func optical(t *testing.T, s *schedule.Schedule, rng *rand.Rand, steer bool) (*team, *fabric) {
	t.Helper()
	planes := 1 + rng.IntN(3)
	count := []int64{1, 7, 150}[rng.IntN(3)]
	size := float64(count * 4 * int64(max(s.Blocks[schedule.Input], s.Blocks[schedule.Output])))
	problem, stepOf, err := schedule.Problem(s, size, &plans.Problem{Planes: planes, BandwidthGbps: 1, Forwarding: true})
	require.NoError(t, err)
	args := program.Args{Count: count, ElemSize: 4, InPlace: rng.IntN(2) == 0, Problem: problem, StepOf: stepOf}
	for range planes {
		args.Current = append(args.Current, circuit.Shift(s.Ranks, rng.IntN(s.Ranks)))
	}
	progs, err := lowerAll(s, programtest.RandomPlan(problem, rng), args)
	require.NoError(t, err)
	f := newFabric(s.Ranks, 2+rng.IntN(3), args.Current, rng.Uint64())
	f.steer = steer
	tm := assemble(t, programtest.NewCase(s, count, 1, rng.Uint64()), progs, args.InPlace, func(r int, c *Call) {
		e := f.endpoint(r)
		c.Endpoint, c.OCS, c.Base = e, e, f.bases()
	})
	return tm, f
}

// TestConcurrent runs several calls with a goroutine per rank.
func TestConcurrent(t *testing.T) {
	const n, planes, count = 4, 2, 5000
	s, err := schedule.Build(schedule.AllReduce, "ring", n, 0)
	require.NoError(t, err)
	progs, err := lowerAll(s, nil, program.Args{Planes: planes, Count: count, ElemSize: 4, MinPiece: 64})
	require.NoError(t, err)
	endpoints, err := inproc.NewGroup(n, planes, inproc.Options{})
	require.NoError(t, err)
	for op := uint64(0); op < 20; op++ {
		tm := assemble(t, programtest.NewCase(s, count, 1, op), progs, false, func(r int, c *Call) {
			c.Endpoint, c.Op = endpoints[r], op
		})
		errs := make(chan error, n)
		for _, task := range tm.tasks {
			go func() { errs <- Run([]*Task{task}, patience) }()
		}
		for range n {
			require.NoError(t, <-errs)
		}
		tm.verify(t)
	}
}

// TestGroup checks that calls of one communicator run one after another, independently of the progress of other ranks.
func TestGroup(t *testing.T) {
	const n, planes, count = 3, 2, 50
	endpoints := network(t, n, planes, 5)
	perRank := make([][]*Task, n)
	var teams []*team
	for op, c := range []schedule.Collective{schedule.AllReduce, schedule.AllGather, schedule.AllReduce,
		schedule.AllToAll} {
		s, err := schedule.Build(c, schedule.Algorithms(c)[0], n, 0)
		require.NoError(t, err)
		progs, err := lowerAll(s, nil, program.Args{Planes: planes, Count: count, ElemSize: 4, MinPiece: 64})
		require.NoError(t, err)
		tm := assemble(t, programtest.NewCase(s, count, 1, uint64(op)), progs, false, func(r int, c *Call) {
			c.Endpoint, c.Op = endpoints[r], uint64(op)
		})
		teams = append(teams, tm)
		for r, task := range tm.tasks {
			perRank[r] = append(perRank[r], task)
		}
	}
	errs := make(chan error, n)
	for _, tasks := range perRank {
		go func() { errs <- Run(tasks, patience) }()
	}
	for range n {
		require.NoError(t, <-errs)
	}
	for _, tm := range teams {
		tm.verify(t)
	}
}

// lowerAll returns the programs of all ranks.
func lowerAll(s *schedule.Schedule, plan *plans.Plan, args program.Args) ([]*program.Program, error) {
	all := make([]*program.Program, s.Ranks)
	for r := range all {
		var err error
		args.Rank = r
		if all[r], err = program.Lower(s, plan, args); err != nil {
			return nil, err
		}
	}
	return all, nil
}
