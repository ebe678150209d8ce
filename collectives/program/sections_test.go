package program_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
)

// rotating is a pairwise exchange with a plan that mostly repeats.
func rotating(t *testing.T, n int) (*schedule.Schedule, *plans.Plan, program.Args) {
	t.Helper()
	s, err := schedule.Build(schedule.AllToAll, "pairwise", n, 0, schedule.Disjoint)
	require.NoError(t, err)
	problem, stepOf, err := schedule.Problem(s, float64(n*64), &plans.Problem{
		Planes: 4, Circuits: plans.Simplex, BandwidthGbps: 0.01, ReconfigUS: 200,
		Final: plans.Final{Kind: plans.FinalInitial},
	})
	require.NoError(t, err)
	plan, err := planner.Solve(context.Background(), "swot", problem,
		planner.Options{TimeLimit: time.Minute, Effort: time.Nanosecond})
	require.NoError(t, err)
	return s, plan, program.Args{Count: 16, ElemSize: 4, Problem: problem, StepOf: stepOf, Signature: 7}
}

// TestSectionsAreTheWhole checks that the repetitions of all sections give the operations of the program without
// sections, on the same planes, circuits and epochs.
func TestSectionsAreTheWhole(t *testing.T) {
	s, plan, args := rotating(t, 61)
	for _, rank := range []int{0, 1, 30, 60} {
		args.Rank, args.SectionSteps = rank, 0
		flat, err := program.Lower(s, plan, args)
		require.NoError(t, err)
		args.SectionSteps = 4
		rolled, err := program.Lower(s, plan, args)
		require.NoError(t, err)
		if len(rolled.Sections) < 2 || len(rolled.Sections) > 5 || len(rolled.Ops) != 0 {
			t.Fatalf("rank %d: %d sections, %d operations outside", rank, len(rolled.Sections), len(rolled.Ops))
		}
		if rolled.Extent != flat.Extent || rolled.Reduces != flat.Reduces || rolled.ScratchBytes != flat.ScratchBytes {
			t.Errorf("rank %d: %+v, want %+v", rank, rolled.Extent, flat.Extent)
		}
		want, got := inOrder(flat.Ops, flat.Lanes, flat.Configs, nil), []laneOp(nil)
		base := make([]uint32, len(plan.Planes))
		var r program.Repetition
		for _, section := range rolled.Sections {
			for i := range section.Count {
				section.Repetition(i, &r)
				maps := make([][]circuit.Permutation, len(plan.Planes))
				for j := range maps {
					for k := range section.Program.Configs[j] {
						maps[j] = append(maps[j], section.Map(j, k, i, new(circuit.Permutation)))
					}
				}
				got = append(got, inOrder(r.Ops, section.Program.Lanes, maps, base)...)
				for j := range base {
					base[j] += section.Program.Switches(j)
				}
			}
		}
		byPlane := func(all []laneOp) map[[2]int][]laneOp {
			m := map[[2]int][]laneOp{}
			for _, o := range all {
				m[[2]int{int(o.op.Plane), o.lane}] = append(m[[2]int{int(o.op.Plane), o.lane}], o)
			}
			return m
		}
		if a, b := byPlane(got), byPlane(want); !reflect.DeepEqual(a, b) {
			for k, list := range b {
				for i := range list {
					if i >= len(a[k]) || !reflect.DeepEqual(a[k][i], list[i]) {
						t.Fatalf("rank %d, plane and lane %v, operation %d of %d: sections have %+v, the whole %+v", rank, k, i,
							len(a[k]), a[k][min(i, len(a[k])-1)], list[i])
					}
				}
			}
			t.Fatalf("rank %d: sections have more than the whole", rank)
		}
		for j := range plan.Planes {
			if n := flat.Switches(j); rolled.Switches(j) != n {
				t.Fatalf("rank %d plane %d: %d switches, want %d", rank, j, rolled.Switches(j), n)
			}
			for k := uint32(1); k <= flat.Switches(j); k++ {
				if !rolled.Target(j, k).Equal(flat.Target(j, k)) {
					t.Fatalf("rank %d plane %d move %d: %v, want %v", rank, j, k, rolled.Target(j, k), flat.Target(j, k))
				}
			}
		}
	}
}

// laneOp is an operation of a plane. Its epochs and its map count from the start of the call; it has no reference to
// the order in its program.
type laneOp struct {
	op   program.Op
	lane int // 0 transmits, 1 receives
	to   circuit.Permutation
}

func inOrder(ops []program.Op, lanes []program.Lane, configs [][]circuit.Permutation, base []uint32) (all []laneOp) {
	for j := range lanes {
		for lane, ids := range [][]program.OpID{lanes[j].TX, lanes[j].RX} {
			for _, id := range ids {
				op := ops[id]
				to := configs[j][op.Config]
				if op.Deps, op.Config = nil, 0; base != nil {
					if op.Epoch += base[j]; op.Kind != program.Reconfigure {
						op.Route += base[j]
					}
				}
				// Both are shared memory: compare what they say.
				op.Src, op.Dst = append([]program.Segment(nil), op.Src...), append([]program.Segment(nil), op.Dst...)
				all = append(all, laneOp{op, lane, to})
			}
		}
	}
	return all
}

// TestSectionsDoNotGrow checks that four times as many steps do not increase the operations, maps and sections of a
// program.
func TestSectionsDoNotGrow(t *testing.T) {
	size := func(n int) (parts, sections int) {
		s, plan, args := rotating(t, n)
		args.SectionSteps = 4
		p, err := program.Lower(s, plan, args)
		require.NoError(t, err)
		for _, section := range p.Sections {
			parts += len(section.Program.Ops)
			for _, maps := range section.Program.Configs {
				parts += cap(maps)
			}
		}
		return parts, len(p.Sections)
	}
	small, sections := size(65)
	large, more := size(257)
	if sections == 0 || large > small+small/4 || more > sections+1 {
		t.Errorf("%d operations and maps in %d sections of 64 steps, %d in %d of 256", small, sections, large, more)
	}
}
