package shim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
)

// warmSetup starts a fabric of 4 ports and returns what Warm needs of it.
func warmSetup(t *testing.T) (*settings.Config, *fabric.Fabric, *cache.Cache) {
	t.Helper()
	lightFabric(t, 4, 2, nil)
	dir := t.TempDir()
	t.Setenv("LIGHTPATH_PLAN_DIR", dir)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	cfg, err := settings.Load()
	if err != nil {
		t.Fatal(err)
	}
	fab, err := fabric.Load(os.Getenv("LIGHTPATH_FABRIC"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := cache.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, fab, store
}

// TestWarm: a job takes the plans that were made ahead for it and plans nothing. To tell,
// the plans made ahead are exchanged for ones that its planner would never make.
func TestWarm(t *testing.T) {
	for _, c := range []struct {
		ranks   int
		shape   planning.Asked
		kind    calls.Kind
		inPlace bool
	}{
		{4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1000, Root: 0}, calls.AllReduce, true},
		{4, planning.Asked{Collective: schedule.AllToAll, Type: datatype.Bfloat16, Count: 77, Root: 0}, calls.AllToAll, false},
		{4, planning.Asked{Collective: schedule.Broadcast, Type: datatype.Float64, Count: 5, Root: 2}, calls.Broadcast, true},
		{3, planning.Asked{Collective: schedule.ReduceScatter, Type: datatype.Int8, Count: 4000, Root: 0}, calls.ReduceScatter, false},
	} {
		t.Run(fmt.Sprintf("%v/%d", c.kind, c.ranks), func(t *testing.T) {
			cfg, fab, store := warmSetup(t)
			made := warm(t, cfg, fab, c.ranks, store, c.shape)
			if made.Cached {
				t.Fatal("an empty cache has the plan")
			}
			if again := warm(t, cfg, fab, c.ranks, store, c.shape); !again.Cached || again.Plan.Digest != made.Plan.Digest {
				t.Fatalf("again: %+v", again)
			}
			point := made.Entry.Span
			marked, err := planner.Solve(t.Context(), "perstep", point.Low.Problem, planner.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Put(made.Entry.Key, sizes.Point(point.Min, point.Low.Problem, marked)); err != nil {
				t.Fatal(err)
			}
			if err := plans.Seal(point.Low.Problem, marked); err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, c.ranks)
			w.must(func(comm *Comm) error {
				send, recv := make([]byte, 40000), make([]byte, 40000)
				call := calls.Call{Comm: comm, Kind: c.kind, Type: c.shape.Type, Count: c.shape.Count, Peer: int32(c.shape.Root),
					Send: unsafe.Pointer(&send[0]), Recv: unsafe.Pointer(&recv[0])}
				if c.inPlace {
					call.Recv = call.Send
				}
				return Run([]calls.Call{call})
			})
			agreed := circuits.Of(w.comms[0]).Known.Plans()
			if len(agreed) != 1 {
				t.Fatalf("%d plans were used", len(agreed))
			}
			for _, p := range agreed {
				if p.Planner != "perstep" || p.Digest != marked.Digest {
					t.Errorf("the plan in use is %s's", p.Planner)
				}
			}
			if files := planFiles(t, store.Dir()); len(files) != 1 {
				t.Errorf("%d files in the cache", len(files))
			}
		})
	}
}

// warm makes the plan of one call ahead.
func warm(t *testing.T, cfg *settings.Config, fab *fabric.Fabric, ranks int, store *cache.Cache, call planning.Asked) planning.Warmed {
	t.Helper()
	made, err := planning.Warm(t.Context(), cfg, fab, ranks, []planning.Asked{call}, store, nil)
	if err != nil || made[0].Err != nil {
		t.Fatal(made, err)
	}
	return made[0]
}

// TestWarmIntervals: of many sizes few are planned, and a job takes the plans of all of them,
// and of sizes between them, from the cache.
func TestWarmIntervals(t *testing.T) {
	cfg, fab, store := warmSetup(t)
	var group []planning.Asked
	for count := uint64(1 << 10); count <= 1<<20; count *= 2 {
		group = append(group, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: count, Root: 0})
	}
	plannings := 0
	made, err := planning.Warm(t.Context(), cfg, fab, 4, group, store, func(n int) { plannings = n })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d sizes, %d plannings, %d files", len(group), plannings, len(planFiles(t, store.Dir())))
	for i, m := range made {
		bytes := int64(4 * group[i].Count)
		if m.Err != nil || m.Entry.Span.Min > bytes || m.Entry.Span.Max < bytes || m.Plan.CCTUS <= 0 {
			t.Errorf("%+v", m)
		}
	}
	if plannings > 2*len(group)+4 {
		t.Errorf("%d plannings for %d sizes", plannings, len(group))
	}
	w := newWorld(t, 4)
	for _, count := range []int{1 << 10, 3000, 1 << 12, 40001} {
		k := collectiveCase{kind: calls.AllReduce, typ: datatype.Float32, count: count}
		if err := k.run(w, rand.New(rand.NewPCG(1, 2))); err != nil {
			t.Fatal(err)
		}
	}
	if n := plannedBy(w); n != 0 {
		t.Errorf("the job made %d plans", n)
	}
}

// plannedBy counts the plans that a world's leader has made.
func plannedBy(w *world) (n int) { return live.Of(w.comms[0]).Book.Plannings() }

// TestWarmReplacesWhatIsUnusable: as the job itself would.
func TestWarmReplacesWhatIsUnusable(t *testing.T) {
	cfg, fab, store := warmSetup(t)
	call := planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1000, Root: 0}
	warm(t, cfg, fab, 4, store, call)
	damage(t, planFiles(t, store.Dir())[0])
	other, err := cache.Open(store.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if again := warm(t, cfg, fab, 4, other, call); again.Cached {
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
		"one rank":          {1, good, nil, errdefs.ErrInvalidArgument},
		"too many ranks":    {5, good, nil, errdefs.ErrInvalidArgument},
		"no elements":       {4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 0, Root: 0}, nil, errdefs.ErrInvalidArgument},
		"too many elements": {4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1 << 62, Root: 0}, nil, errdefs.ErrInvalidArgument},
		"root of none":      {4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.Float32, Count: 1000, Root: 1}, nil, errdefs.ErrInvalidArgument},
		"no such root":      {4, planning.Asked{Collective: schedule.Reduce, Type: datatype.Float32, Count: 1000, Root: 4}, nil, errdefs.ErrInvalidArgument},
		"no such type":      {4, planning.Asked{Collective: schedule.AllReduce, Type: datatype.NumTypes, Count: 1000, Root: 0}, nil, errdefs.ErrInvalidArgument},
		"point to point":    {4, planning.Asked{Collective: schedule.SendRecv, Type: datatype.Float32, Count: 1000, Root: 0}, nil, errdefs.ErrInvalidArgument},
		"present circuits":  {4, good, func(c *settings.Config, _ *fabric.Fabric) { c.PlanCurrent = true }, errdefs.ErrInvalidArgument},
		"no circuits":       {4, good, func(_ *settings.Config, f *fabric.Fabric) { f.Planes[0].OCS = "" }, errdefs.ErrInvalidArgument},
		"no plan": {4, good, func(c *settings.Config, f *fabric.Fabric) {
			c.Planner, f.Forwarding, f.Planes = "static", false, f.Planes[:1]
		}, planner.ErrInfeasible},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, fab, store := warmSetup(t)
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
			if files := planFiles(t, store.Dir()); len(files) != 0 {
				t.Errorf("%d files in the cache", len(files))
			}
		})
	}
}
