package optical_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/rewire"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/lumos"
	"lightpath/shim/shimtest"
)

// operator is a controller in this process, as an operator uses it.
type operator struct{ c controller.Controller }

func (o operator) Set(_ context.Context, plane int, target circuit.Permutation, who string) error {
	return o.c.Set(plane, target, who)
}

func (o operator) Disable(_ context.Context, plane int, reason, who string) error {
	return o.c.Disable(plane, reason, who)
}

func (o operator) Enable(_ context.Context, plane int, who string) error {
	return o.c.Enable(plane, who)
}

// rewired is a cluster whose pods are the ranks of a test and whose one group of OCSes is its planes.
var rewired = lumos.Fabric{Pods: 4, KLeaf: 2, KSpine: 4, Tau: 2, KOCS: 4}

// jobs returns what a random set of jobs needs between leaves.
func jobs(t *testing.T, rng *rand.Rand) *lumos.Requirement {
	r, err := lumos.NewRequirement(rewired)
	shimtest.Fatal(t)(err)
	for range 40 {
		a, b := rng.IntN(rewired.Leaves()), rng.IntN(rewired.Leaves())
		_ = r.Add(a, b, 1) // or it has no room, or needs no circuit
	}
	return r
}

// stagesOf returns, for each step, the planes of group 0 whose map changes, with the new map.
func stagesOf(steps []lumos.Step) []map[int]circuit.Permutation {
	stages := make([]map[int]circuit.Permutation, len(steps))
	for s, step := range steps {
		stages[s] = map[int]circuit.Permutation{}
		for _, m := range step.Moves {
			for side, want := range m.Maps() {
				if m.Group == 0 {
					stages[s][2*m.Pair+side] = want
				}
			}
		}
	}
	return stages
}

// rewiring changes the planes for one set of jobs after the other, step by step, while the ranks of w run
// collectives. Every result must be right.
func rewiring(t *testing.T, c controller.Controller, w *shimtest.World, sets int) {
	t.Helper()
	must := shimtest.Fatal(t)
	core, err := lumos.NewCore(rewired)
	must(err)
	rng := rand.New(rand.NewPCG(31, 7))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	var stages, calls atomic.Int32
	planes := make([]string, rewired.KSpine)
	ended := make(chan error, 1)
	go func() {
		ended <- func() error {
			for range sets {
				from, old, r := core.Configuration(), core.Logical(), jobs(t, rng)
				if _, err := core.Update(r, true); err != nil {
					return err
				}
				steps, err := lumos.Steps(from, core.Configuration(), old.Continuing(r), 0.5)
				if err != nil {
					return err
				}
				o := rewire.Options{Planes: planes, Who: "a test", Done: func(int) { stages.Add(1) }}
				if err := rewire.Run(ctx, operator{c}, stagesOf(steps), o); err != nil {
					return err
				}
				for enough := calls.Load() + 3; calls.Load() < enough && ctx.Err() == nil; {
					time.Sleep(100 * time.Microsecond)
				}
			}
			return nil
		}()
	}()
	draw := rand.New(rand.NewPCG(3, 9))
	for after := 2; after > 0; {
		k := shimtest.Collective{Kind: shimtest.OracleKinds[draw.IntN(len(shimtest.OracleKinds))], Type: datatype.Int32,
			Op: datatype.Sum, Root: draw.IntN(4), Count: draw.IntN(20000)}
		must(k.Run(w, draw))
		calls.Add(1)
		select {
		case err := <-ended:
			must(err)
			after = 1 // and one that begins with the last maps
			ended = nil
		default:
			if ended == nil {
				after--
			}
		}
	}
	snapshot, err := c.Snapshot()
	must(err)
	for j, want := range (lumos.Planes{Groups: []int{0}}).Maps(core.Configuration()) {
		if p := snapshot.Planes[j]; !p.Map.Equal(want) || p.State != controller.Resident {
			t.Errorf("plane %d is %v with %v, want %v", j, p.State, p.Map, want)
		}
	}
	t.Logf("%d collectives during %d stages", calls.Load(), stages.Load())
}

// staticPlans has collectives use the circuits that there are.
func staticPlans(t *testing.T) {
	t.Setenv("LIGHTPATH_PLANNER", "static")
	t.Setenv("LIGHTPATH_PLAN_INITIAL", "current")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
}

// TestRewiringUnderLoad: planes get new maps group by group while collectives run on the others, and
// none fails.
func TestRewiringUnderLoad(t *testing.T) {
	server := shimtest.UseEmulator(t, rewired.Pods, rewired.KSpine, func(f *fabric.Fabric) {
		f.Circuits = plans.Interleaved
	})
	staticPlans(t)
	w := shimtest.NewWorld(t, rewired.Pods)
	rewiring(t, server.Core(), w, 12)
	stats, err := server.Stats()
	shimtest.Fatal(t)(err)
	frames := uint64(0)
	for j, s := range stats {
		frames += s.Frames
		for v, n := range s.Lost {
			if n > 0 {
				t.Errorf("plane %d lost %d frames, verdict %d", j, n, v)
			}
		}
	}
	if frames == 0 {
		t.Error("nothing was carried by circuits")
	}
}

// TestRewiringInTheKernel is the same over circuits that lose what is sent while they move.
func TestRewiringInTheKernel(t *testing.T) {
	core, lost := shimtest.UseKernelPlanes(t, rewired.Pods, rewired.KSpine, 5e8)
	staticPlans(t)
	w := shimtest.NewWorld(t, rewired.Pods)
	rewiring(t, core, w, 6)
	if problems := lost(); len(problems) > 0 {
		t.Error(problems)
	}
}
