package optical_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

// TestWarm: a job takes the plans that were made ahead for it and plans nothing. To tell,
// the plans made ahead are exchanged for ones that its planner would never make.
func TestWarm(t *testing.T) {
	for _, c := range []struct {
		ranks   int
		shape   planning.Asked
		kind    calls.Kind
		inPlace bool
	}{
		{4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1000, Root: 0}, calls.AllReduce,
			true},
		{4, planning.Asked{Collective: schedule.AllToAll, Type: datatype.Bfloat16, Count: 77, Root: 0}, calls.AllToAll,
			false},
		{4, planning.Asked{Collective: schedule.Broadcast, Type: datatype.Float64, Count: 5, Root: 2}, calls.Broadcast, true},
		{3, planning.Asked{Collective: schedule.ReduceScatter, Type: datatype.Int8, Count: 4000, Root: 0},
			calls.ReduceScatter, false},
	} {
		t.Run(fmt.Sprintf("%v/%d", c.kind, c.ranks), func(t *testing.T) {
			cfg, fab, store := shimtest.SetUpWarm(t)
			made := shimtest.WarmPlan(t, cfg, fab, c.ranks, store, c.shape)
			if made.Cached {
				t.Fatal("an empty cache has the plan")
			}
			if again := shimtest.WarmPlan(t, cfg, fab, c.ranks, store, c.shape); !again.Cached ||
				again.Plan.Digest != made.Plan.Digest {
				t.Fatalf("again: %+v", again)
			}
			point := made.Entry.Span
			marked, err := planner.Solve(t.Context(), "perstep", point.Low.Problem, planner.Options{})
			require.NoError(t, err)
			if _, err := store.Put(made.Entry.Key, sizes.Point(point.Min, point.Low.Problem, marked)); err != nil {
				t.Fatal(err)
			}
			require.NoError(t, plans.Seal(point.Low.Problem, marked))
			w := shimtest.NewWorld(t, c.ranks)
			w.Must(func(comm *shim.Comm) error {
				send, recv := make([]byte, 40000), make([]byte, 40000)
				call := calls.Call{Comm: comm, Kind: c.kind, Type: c.shape.Type, Count: c.shape.Count, Peer: int32(c.shape.Root),
					Send: unsafe.Pointer(&send[0]), Recv: unsafe.Pointer(&recv[0])}
				if c.inPlace {
					call.Recv = call.Send
				}
				return shim.Run([]calls.Call{call})
			})
			agreed := circuits.Of(w.Comms[0]).Known.Plans()
			if len(agreed) != 1 {
				t.Fatalf("%d plans were used", len(agreed))
			}
			for _, p := range agreed {
				if p.Planner != "perstep" || p.Digest != marked.Digest {
					t.Errorf("the plan in use is %s's", p.Planner)
				}
			}
			if files := shimtest.PlanFiles(t, store.Dir()); len(files) != 1 {
				t.Errorf("%d files in the cache", len(files))
			}
		})
	}
}

// TestWarmIntervals: of many sizes few are planned, and a job takes the plans of all of them,
// and of sizes between them, from the cache.
func TestWarmIntervals(t *testing.T) {
	cfg, fab, store := shimtest.SetUpWarm(t)
	var group []planning.Asked
	for count := uint64(1 << 10); count <= 1<<20; count *= 2 {
		group = append(group, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: count, Root: 0})
	}
	plannings := 0
	made, err := planning.Warm(t.Context(), cfg, fab, 4, group, store, func(n int) { plannings = n })
	require.NoError(t, err)
	t.Logf("%d sizes, %d plannings, %d files", len(group), plannings, len(shimtest.PlanFiles(t, store.Dir())))
	for i, m := range made {
		bytes := int64(4 * group[i].Count)
		if m.Err != nil || m.Entry.Span.Min > bytes || m.Entry.Span.Max < bytes || m.Plan.CCTUS <= 0 {
			t.Errorf("%+v", m)
		}
	}
	if plannings > 2*len(group)+4 {
		t.Errorf("%d plannings for %d sizes", plannings, len(group))
	}
	w := shimtest.NewWorld(t, 4)
	for _, count := range []int{1 << 10, 3000, 1 << 12, 40001} {
		k := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Float32, Count: count}
		require.NoError(t, k.Run(w, rand.New(rand.NewPCG(1, 2))))
	}
	if n := shimtest.PlansMade(w); n != 0 {
		t.Errorf("the job made %d plans", n)
	}
}

// TestWarmReplacesWhatIsUnusable: as the job itself would.
func TestWarmReplacesWhatIsUnusable(t *testing.T) {
	cfg, fab, store := shimtest.SetUpWarm(t)
	call := planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1000, Root: 0}
	shimtest.WarmPlan(t, cfg, fab, 4, store, call)
	shimtest.CorruptPlan(t, shimtest.PlanFiles(t, store.Dir())[0])
	other, err := cache.Open(store.Dir())
	require.NoError(t, err)
	if again := shimtest.WarmPlan(t, cfg, fab, 4, other, call); again.Cached {
		t.Fatal("a damaged file was used")
	}
	list, err := other.List()
	if err != nil || len(list) != 1 || list[0].Err != nil {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestWarmRefuses(t *testing.T) {
	good := planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1000, Root: 0}
	for name, c := range map[string]struct {
		ranks int
		call  planning.Asked
		edit  func(*settings.Config, *fabric.Fabric)
		want  error
	}{
		"one rank":       {1, good, nil, errdefs.ErrInvalidArgument},
		"too many ranks": {5, good, nil, errdefs.ErrInvalidArgument},
		"no elements": {4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 0, Root: 0},
			nil, errdefs.ErrInvalidArgument},
		"too many elements": {4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1 << 62,
			Root: 0}, nil, errdefs.ErrInvalidArgument},
		"root of none": {4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1000, Root: 1},
			nil, errdefs.ErrInvalidArgument},
		"no such root": {4, planning.Asked{Collective: schedule.Reduce, Type: datatype.Float32, Count: 1000, Root: 4},
			nil, errdefs.ErrInvalidArgument},
		"no such type": {4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.NumTypes, Count: 1000,
			Root: 0}, nil, errdefs.ErrInvalidArgument},
		"point to point": {4, planning.Asked{Collective: schedule.SendRecv, Type: datatype.Float32, Count: 1000, Root: 0},
			nil, errdefs.ErrInvalidArgument},
		"present circuits": {4, good, func(c *settings.Config, _ *fabric.Fabric) {
			c.Plan.Current = true
		}, errdefs.ErrInvalidArgument},
		"no circuits": {4, good, func(_ *settings.Config, f *fabric.Fabric) {
			f.Planes[0].OCS = ""
		}, errdefs.ErrInvalidArgument},
		"no plan": {4, good, func(c *settings.Config, f *fabric.Fabric) {
			c.Plan.Planner, f.Forwarding, f.Planes = "static", false, f.Planes[:1]
		}, planner.ErrInfeasible},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, fab, store := shimtest.SetUpWarm(t)
			if c.edit != nil {
				c.edit(cfg, fab)
			}
			made, err := planning.Warm(t.Context(), cfg, fab, c.ranks, []planning.Asked{c.call}, store, nil)
			if err == nil {
				err = made[0].Err
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if files := shimtest.PlanFiles(t, store.Dir()); len(files) != 0 {
				t.Errorf("%d files in the cache", len(files))
			}
		})
	}
}
