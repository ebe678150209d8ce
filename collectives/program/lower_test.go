package program

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// check runs the programs of a case and compares the output of every rank.
func check(t *testing.T, c *programtest.Case, progs []*Program, inPlace bool, seed uint64) {
	t.Helper()
	m := newMachine(progs, c, inPlace, seed)
	require.NoError(t, m.run())
	for r, want := range c.Want {
		if got := m.mem[r][schedule.Output]; want != nil && !bytes.Equal(got, want) {
			t.Fatalf("rank %d: got %x\nwant %x", r, got, want)
		}
	}
}

// eachSchedule calls f with every algorithm of every collective on n ranks.
func eachSchedule(t *testing.T, n int, f func(t *testing.T, s *schedule.Schedule)) {
	t.Helper()
	for c := schedule.Collective(0); c < schedule.NumCollectives; c++ {
		for _, a := range schedule.Algorithms(c) {
			if !schedule.Defined(c, a, n) {
				continue
			}
			s, err := schedule.Build(c, a, n, n/2)
			require.NoError(t, err)
			t.Run(fmt.Sprintf("%v/%s/%d", c, a, n), func(t *testing.T) { f(t, s) })
		}
	}
}

func TestLowerPacket(t *testing.T) {
	for n := 1; n <= 9; n++ {
		eachSchedule(t, n, func(t *testing.T, s *schedule.Schedule) {
			for i, count := range []int64{0, 1, 7, 64} {
				for planes := 1; planes <= 3; planes++ {
					if testing.Short() && (i+planes+n)%3 != 0 {
						continue
					}
					inPlace := (i+planes)%2 == 0
					scale := uint32(1)
					args := Args{Planes: planes, Count: count, ElemSize: 4, InPlace: inPlace, MinPiece: 16}
					if rng := rand.New(rand.NewPCG(uint64(n), uint64(planes))); i == 3 {
						args.Shares = make([]int, planes)
						for j := range args.Shares {
							args.Shares[j] = rng.IntN(20)
						}
						args.Shares[rng.IntN(planes)] = 1 + rng.IntN(maxShare)
					}
					if s.Collective.Reduces() && planes != 2 {
						scale, args.Scale = 3, true
					}
					progs, err := lowerAll(s, nil, args)
					require.NoError(t, err)
					check(t, programtest.NewCase(s, count, scale, uint64(count)), progs, inPlace, uint64(n*planes))
				}
			}
		})
	}
}

// TestLowerPlans runs programs under random plans and checks the results.
func TestLowerPlans(t *testing.T) {
	for n := 2; n <= 8; n++ {
		eachSchedule(t, n, func(t *testing.T, s *schedule.Schedule) {
			for trial := 0; trial < 3; trial++ {
				rng := rand.New(rand.NewPCG(uint64(n), uint64(trial)))
				planes := 1 + rng.IntN(3)
				count := []int64{1, 7, 64}[rng.IntN(3)]
				bytes := float64(count * 4 * int64(max(s.Blocks[schedule.Input], s.Blocks[schedule.Output])))
				problem, stepOf, err := schedule.Problem(s, bytes, &plans.Problem{Planes: planes, BandwidthGbps: 1,
					Forwarding: true})
				require.NoError(t, err)
				inPlace := rng.IntN(2) == 0
				args := Args{Count: count, ElemSize: 4, InPlace: inPlace, Problem: problem, StepOf: stepOf}
				plan := programtest.RandomPlan(problem, rng)
				if trial == 1 {
					for range plan.Planes {
						args.Current = append(args.Current, circuit.Shift(n, rng.IntN(n)))
					}
				}
				progs, err := lowerAll(s, plan, args)
				require.NoError(t, err)
				check(t, programtest.NewCase(s, count, 1, uint64(trial)), progs, inPlace, uint64(trial))
			}
		})
	}
}

func TestLowerErrors(t *testing.T) {
	s, err := schedule.Build(schedule.AllReduce, "ring", 4, 0)
	require.NoError(t, err)
	problem, stepOf, err := schedule.Problem(s, 64, &plans.Problem{Planes: 1, BandwidthGbps: 1})
	require.NoError(t, err)
	good := func() *plans.Plan {
		p := &plans.Plan{Initial: []circuit.Permutation{circuit.Shift(4, 1)}, Planes: make([][]plans.Entry, 1)}
		for i := range problem.Steps {
			p.Planes[0] = append(p.Planes[0], plans.Entry{Kind: plans.Transmit, Step: i, Bytes: problem.Steps[i].Bytes})
		}
		return p
	}
	base := Args{Planes: 1, Count: 16, ElemSize: 4, Problem: problem, StepOf: stepOf}
	for _, tc := range []struct {
		name string
		want error
		edit func(p *plans.Plan, a *Args) *plans.Plan
	}{
		{"good", nil, func(p *plans.Plan, a *Args) *plans.Plan { return p }},
		{"rank", ErrArgs, func(p *plans.Plan, a *Args) *plans.Plan { a.Rank = 4; return p }},
		{"count", ErrArgs, func(p *plans.Plan, a *Args) *plans.Plan { a.Count = -1; return p }},
		{"no planes", ErrArgs, func(p *plans.Plan, a *Args) *plans.Plan { a.Planes = 0; return nil }},
		{"no problem", ErrArgs, func(p *plans.Plan, a *Args) *plans.Plan { a.Problem = nil; return p }},
		{"joint", ErrUnsupported, func(p *plans.Plan, a *Args) *plans.Plan { p.Planes[0][0].Joint = "a"; return p }},
		{"hold", ErrUnsupported, func(p *plans.Plan, a *Args) *plans.Plan { p.Planes[0][0].Kind = plans.Hold; return p }},
		{"dark", ErrPlan, func(p *plans.Plan, a *Args) *plans.Plan { p.Initial[0] = circuit.AllDark(4); return p }},
		{"order", ErrPlan, func(p *plans.Plan, a *Args) *plans.Plan { p.Planes[0][0].Step = 2; return p }},
		{"not carried", ErrPlan, func(p *plans.Plan, a *Args) *plans.Plan { p.Planes[0] = p.Planes[0][1:]; return p }},
		{"bad map", ErrPlan, func(p *plans.Plan, a *Args) *plans.Plan { p.Initial[0] = circuit.Shift(3, 1); return p }},
		{"initial", ErrPlan, func(p *plans.Plan, a *Args) *plans.Plan { p.Initial = nil; return p }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := base
			plan := tc.edit(good(), &a)
			if _, err := Lower(s, plan, a); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestLoads counts the copied bytes. A copy onto itself is omitted unless it scales. So is a copy that is sent,
// combined or overwritten first.
func TestLoads(t *testing.T) {
	for _, tc := range []struct {
		coll           schedule.Collective
		algorithm      string
		inPlace, scale bool
		copied         int64 // bytes at rank 0
	}{
		{schedule.AllReduce, "ring", false, false, 0},
		{schedule.AllReduce, "rabenseifner", false, false, 0},
		{schedule.AllReduce, "ring", false, true, 64},
		{schedule.AllReduce, "ring", true, false, 0},
		{schedule.AllReduce, "ring", true, true, 64},
		{schedule.ReduceScatter, "rabenseifner", false, false, 64}, // the result to Output
		{schedule.AllGather, "ring", false, false, 64},             // its own block
		{schedule.Broadcast, "ring", false, false, 64},             // the root's, which is its result
	} {
		s, err := schedule.Build(tc.coll, tc.algorithm, 4, 0)
		require.NoError(t, err)
		p, err := Lower(s, nil, Args{Planes: 1, Count: 16, ElemSize: 4, InPlace: tc.inPlace, Scale: tc.scale})
		require.NoError(t, err)
		copied := int64(0)
		for _, id := range p.Local {
			copied += p.Code[id].Bytes
		}
		if copied != tc.copied {
			t.Errorf("%+v: %d bytes copied", tc, copied)
		}
	}
}

// FuzzLower lowers broken plans. Lower returns either a program or an error.
func FuzzLower(f *testing.F) {
	f.Add(uint64(1), []byte{0, 1, 2, 3})
	f.Add(uint64(2), []byte{9, 0, 255, 17, 4, 4, 30, 2})
	f.Fuzz(func(t *testing.T, seed uint64, edits []byte) {
		rng := rand.New(rand.NewPCG(seed, 8))
		s, err := schedule.Build(schedule.AllReduce, "rabenseifner", 2+rng.IntN(5), 0)
		require.NoError(t, err)
		problem, stepOf, err := schedule.Problem(s, 64, &plans.Problem{Planes: 1 + rng.IntN(2), BandwidthGbps: 1,
			Forwarding: true})
		require.NoError(t, err)
		plan := programtest.RandomPlan(problem, rng)
		for ; len(edits) >= 4; edits = edits[4:] {
			breakPlan(plan, edits)
		}
		args := Args{Count: 16, ElemSize: 4, Problem: problem, StepOf: stepOf}
		progs, err := lowerAll(s, plan, args)
		if err != nil {
			return
		}
		for _, p := range progs {
			for id := range p.Code {
				for _, d := range p.Code[id].Deps {
					if d >= ID(id) {
						t.Fatalf("instruction %d depends on %d", id, d)
					}
				}
			}
		}
	})
}

func breakPlan(plan *plans.Plan, b []byte) {
	entries := plan.Planes[int(b[0])%len(plan.Planes)]
	e := &entries[int(b[1])%len(entries)]
	switch v := int(int8(b[3])); b[2] % 8 {
	case 0:
		e.Step = v
	case 1:
		e.Bytes = float64(v)
	case 2:
		e.Flows = []int{v, 0}
	case 3:
		e.To = circuit.Permutation{v, 0}
	case 4:
		e.Kind = []plans.Kind{plans.Transmit, plans.Reconfigure, plans.Hold, "x"}[b[3]%4]
	case 5:
		e.Bytes = math.Inf(v)
	case 6:
		plan.Initial = plan.Initial[:int(b[3])%(len(plan.Initial)+1)]
	case 7:
		e.To = circuit.Shift(4, v)
	}
}

// lowerAll returns the programs of all ranks.
func lowerAll(s *schedule.Schedule, plan *plans.Plan, args Args) ([]*Program, error) {
	all := make([]*Program, s.Ranks)
	for r := range all {
		var err error
		args.Rank = r
		if all[r], err = Lower(s, plan, args); err != nil {
			return nil, err
		}
	}
	return all, nil
}
