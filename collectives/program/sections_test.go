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

// TestSectionsAreTheWhole checks that the repetitions of all sections give the instructions of the program without
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
		if len(rolled.Sections) < 2 || len(rolled.Sections) > 5 || len(rolled.Code) != 0 {
			t.Fatalf("rank %d: %d sections, %d instructions outside", rank, len(rolled.Sections), len(rolled.Code))
		}
		if rolled.Extent != flat.Extent || rolled.Reduces != flat.Reduces || rolled.ScratchBytes != flat.ScratchBytes {
			t.Errorf("rank %d: %+v, want %+v", rank, rolled.Extent, flat.Extent)
		}
		want, got := inOrder(flat.Code, flat.Lanes, flat.Configs, nil), []ordered(nil)
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
				got = append(got, inOrder(r.Code, section.Program.Lanes, maps, base)...)
				for j := range base {
					base[j] += section.Program.Switches(j)
				}
			}
		}
		byPlane := func(all []ordered) map[[2]int][]ordered {
			m := map[[2]int][]ordered{}
			for _, o := range all {
				m[[2]int{int(o.in.Plane), o.lane}] = append(m[[2]int{int(o.in.Plane), o.lane}], o)
			}
			return m
		}
		if a, b := byPlane(got), byPlane(want); !reflect.DeepEqual(a, b) {
			for k, list := range b {
				for i := range list {
					if i >= len(a[k]) || !reflect.DeepEqual(a[k][i], list[i]) {
						t.Fatalf("rank %d, plane and lane %v, instruction %d of %d: sections have %+v, the whole %+v",
							rank, k, i, len(a[k]), a[k][min(i, len(a[k])-1)], list[i])
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

// ordered is an instruction of a plane. Its epochs and its map count from the start of the call; it has no reference to
// the order in its program.
type ordered struct {
	in   program.Instruction
	lane int // 0 transmits, 1 receives
	to   circuit.Permutation
}

func inOrder(code []program.Instruction, lanes []program.Lane, configs [][]circuit.Permutation,
	base []uint32) (all []ordered) {
	for j := range lanes {
		for lane, ids := range [][]program.ID{lanes[j].TX, lanes[j].RX} {
			for _, id := range ids {
				in := code[id]
				to := configs[j][in.Config]
				if in.Deps, in.Config = nil, 0; base != nil {
					if in.Epoch += base[j]; in.Kind != program.Reconfigure {
						in.Route += base[j]
					}
				}
				// Both are shared memory: compare what they say.
				in.Src, in.Dst = append([]program.Segment(nil), in.Src...), append([]program.Segment(nil), in.Dst...)
				all = append(all, ordered{in, lane, to})
			}
		}
	}
	return all
}

// TestSectionsDoNotGrow checks that four times as many steps do not increase the instructions, maps and sections of a
// program.
func TestSectionsDoNotGrow(t *testing.T) {
	size := func(n int) (parts, sections int) {
		s, plan, args := rotating(t, n)
		args.SectionSteps = 4
		p, err := program.Lower(s, plan, args)
		require.NoError(t, err)
		for _, section := range p.Sections {
			parts += len(section.Program.Code)
			for _, maps := range section.Program.Configs {
				parts += cap(maps)
			}
		}
		return parts, len(p.Sections)
	}
	small, sections := size(65)
	large, more := size(257)
	if sections == 0 || large > small+small/4 || more > sections+1 {
		t.Errorf("%d instructions and maps in %d sections of 64 steps, %d in %d of 256", small, sections, large, more)
	}
}
