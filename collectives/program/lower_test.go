package program

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// call is a collective call of all ranks over uint32 elements, with its right answer.
type call struct {
	s     *schedule.Schedule
	count int64
	in    [][]byte
	out   []int    // bytes per rank
	want  [][]byte // nil where a rank has no output
}

func newCall(s *schedule.Schedule, count int64, scale uint32, seed uint64) *call {
	c := &call{s: s, count: count}
	rng := rand.New(rand.NewPCG(seed, 2))
	n, b := s.Ranks, int(count)*4
	for r := 0; r < n; r++ {
		in := make([]byte, s.BlocksAt(r, schedule.Input)*b)
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		c.in = append(c.in, in)
		c.out = append(c.out, s.BlocksAt(r, schedule.Output)*b)
	}
	block := func(r, i int) []byte { return c.in[r][i*b : (i+1)*b] }
	sum := func(i int) []byte {
		out := make([]byte, b)
		for r := 0; r < n; r++ {
			addInto(out, block(r, i))
		}
		for i := 0; i < len(out); i += 4 {
			binary.LittleEndian.PutUint32(out[i:], binary.LittleEndian.Uint32(out[i:])*scale)
		}
		return out
	}
	var all []byte
	for r := 0; r < n && s.Collective != schedule.Broadcast && s.Collective != schedule.Scatter; r++ {
		all = append(all, block(r, 0)...)
	}
	for r := 0; r < n; r++ {
		var want []byte
		switch s.Collective {
		case schedule.AllReduce:
			want = sum(0)
		case schedule.Broadcast:
			want = block(s.Root, 0)
		case schedule.Reduce:
			if r == s.Root {
				want = sum(0)
			}
		case schedule.AllGather:
			want = all
		case schedule.Gather:
			if r == s.Root {
				want = all
			}
		case schedule.ReduceScatter:
			want = sum(r)
		case schedule.Scatter:
			want = block(s.Root, r)
		case schedule.AllToAll:
			for q := 0; q < n; q++ {
				want = append(want, block(q, r)...)
			}
		case schedule.SendRecv:
			want = block((r+n-1)%n, 0)
		}
		c.want = append(c.want, want)
	}
	return c
}

func (c *call) check(t *testing.T, progs []*Program, inPlace bool, seed uint64) {
	t.Helper()
	m := newMachine(progs, c.in, c.out, inPlace, c.s, c.count, seed)
	if err := m.run(); err != nil {
		t.Fatal(err)
	}
	for r, want := range c.want {
		if got := m.mem[r][schedule.Output]; want != nil && !bytes.Equal(got, want) {
			t.Fatalf("rank %d: got %x\nwant %x", r, got, want)
		}
	}
}

// eachSchedule builds every algorithm of every collective on n ranks.
func eachSchedule(t *testing.T, n int, f func(t *testing.T, s *schedule.Schedule)) {
	t.Helper()
	for c := schedule.Collective(0); c < schedule.NumCollectives; c++ {
		for _, a := range schedule.Algorithms(c) {
			if !schedule.Defined(c, a, n) {
				continue
			}
			s, err := schedule.Build(c, a, n, n/2)
			if err != nil {
				t.Fatal(err)
			}
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
					if s.Collective.Reduces() && planes != 2 {
						scale, args.Scale = 3, true
					}
					progs, err := LowerAll(s, nil, args)
					if err != nil {
						t.Fatal(err)
					}
					newCall(s, count, scale, uint64(count)).check(t, progs, inPlace, uint64(n*planes))
				}
			}
		})
	}
}

// randomPlan is a feasible plan of p with random splits, over random planes and entries,
// on each step's own circuits or round a ring.
func randomPlan(p *plans.Problem, rng *rand.Rand) *plans.Plan {
	ring := circuit.Shift(p.Ranks, 1)
	plan := &plans.Plan{Version: plans.Version, Planes: make([][]plans.Entry, p.Planes)}
	maps := make([]circuit.Permutation, p.Planes)
	for j := range maps {
		maps[j] = []circuit.Permutation{ring, circuit.AllDark(p.Ranks), circuit.Shift(p.Ranks, 2)}[rng.IntN(3)]
		plan.Initial = append(plan.Initial, maps[j])
	}
	for i := range p.Steps {
		st := &p.Steps[i]
		left := st.Bytes
		for j, last := range rng.Perm(p.Planes) {
			_ = last
			for k := rng.IntN(3); k >= 0; k-- {
				e := plans.Entry{Kind: plans.Transmit, Step: i, Bytes: left * rng.Float64()}
				if j == p.Planes-1 && k == 0 {
					e.Bytes = left
				}
				left -= e.Bytes
				to := ring
				if st.To != nil && rng.IntN(2) == 0 {
					to = st.To
				}
				if !routable(maps[j], st) || rng.IntN(3) == 0 {
					plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Reconfigure, To: to})
					maps[j] = to
				}
				if rng.IntN(4) == 0 {
					// The same bytes as two entries, each for some of the flows.
					var some, rest []int
					for f := range st.FlowList() {
						if rng.IntN(2) == 0 {
							some = append(some, f)
						} else {
							rest = append(rest, f)
						}
					}
					for _, list := range [][]int{some, rest} {
						if list != nil {
							part := e
							part.Flows = list
							plan.Planes[j] = append(plan.Planes[j], part)
						}
					}
					continue
				}
				plan.Planes[j] = append(plan.Planes[j], e)
			}
		}
	}
	for j := range maps {
		plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Reconfigure, To: plan.Initial[j]})
	}
	return plan
}

func routable(m circuit.Permutation, st *plans.Step) bool {
	for _, f := range st.FlowList() {
		if _, ok := m.Hops(f[0], f[1]); !ok {
			return false
		}
	}
	return true
}

// Whatever the plan, the bytes are those of the schedule.
func TestLowerPlans(t *testing.T) {
	for n := 2; n <= 8; n++ {
		eachSchedule(t, n, func(t *testing.T, s *schedule.Schedule) {
			for trial := 0; trial < 3; trial++ {
				rng := rand.New(rand.NewPCG(uint64(n), uint64(trial)))
				planes := 1 + rng.IntN(3)
				count := []int64{1, 7, 64}[rng.IntN(3)]
				bytes := float64(count * 4 * int64(max(s.Blocks[schedule.Input], s.Blocks[schedule.Output])))
				problem, stepOf, err := schedule.Problem(s, bytes, &plans.Problem{Planes: planes, BandwidthGbps: 1, Forwarding: true})
				if err != nil {
					t.Fatal(err)
				}
				inPlace := rng.IntN(2) == 0
				args := Args{Count: count, ElemSize: 4, InPlace: inPlace, Problem: problem, StepOf: stepOf}
				plan := randomPlan(problem, rng)
				if trial == 1 {
					for range plan.Planes {
						args.Current = append(args.Current, circuit.Shift(n, rng.IntN(n)))
					}
				}
				progs, err := LowerAll(s, plan, args)
				if err != nil {
					t.Fatal(err)
				}
				newCall(s, count, 1, uint64(trial)).check(t, progs, inPlace, uint64(trial))
			}
		})
	}
}

func TestLowerErrors(t *testing.T) {
	s, err := schedule.Build(schedule.AllReduce, "ring", 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	problem, stepOf, err := schedule.Problem(s, 64, &plans.Problem{Planes: 1, BandwidthGbps: 1})
	if err != nil {
		t.Fatal(err)
	}
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

// A load onto itself is nothing to do, unless it scales.
func TestInPlaceCopies(t *testing.T) {
	s, err := schedule.Build(schedule.AllReduce, "ring", 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		inPlace, scale bool
		want           int
	}{{false, false, 1}, {true, false, 0}, {true, true, 1}} {
		p, err := Lower(s, nil, Args{Planes: 1, Count: 16, ElemSize: 4, InPlace: tc.inPlace, Scale: tc.scale})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Local) != tc.want {
			t.Errorf("in place %v, scale %v: %d local operations, want %d", tc.inPlace, tc.scale, len(p.Local), tc.want)
		}
	}
}
