package shim

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
)

// warmSetup starts a fabric of 4 ports and returns what Warm needs of it.
func warmSetup(t *testing.T) (*Config, *fabric.Fabric, *cache.Cache) {
	t.Helper()
	lightFabric(t, 4, 2, nil)
	dir := t.TempDir()
	t.Setenv("LIGHTPATH_PLAN_DIR", dir)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	cfg, err := LoadConfig()
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
		shape   CallShape
		kind    CallKind
		inPlace bool
	}{
		{4, CallShape{schedule.AllReduce, datatype.Float32, 1000, 0}, CallAllReduce, true},
		{4, CallShape{schedule.AllToAll, datatype.Bfloat16, 77, 0}, CallAllToAll, false},
		{4, CallShape{schedule.Broadcast, datatype.Float64, 5, 2}, CallBroadcast, true},
		{3, CallShape{schedule.ReduceScatter, datatype.Int8, 4000, 0}, CallReduceScatter, false},
	} {
		t.Run(fmt.Sprintf("%v/%d", c.kind, c.ranks), func(t *testing.T) {
			cfg, fab, store := warmSetup(t)
			made, hit, err := Warm(cfg, fab, c.ranks, c.shape, store)
			if err != nil || hit {
				t.Fatalf("hit %t, %v", hit, err)
			}
			if again, hit, err := Warm(cfg, fab, c.ranks, c.shape, store); err != nil || !hit || again != made {
				t.Fatalf("again: hit %t, %v", hit, err)
			}
			marked, err := planner.Solve(t.Context(), "perstep", made.Problem, planner.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Put(made.Key, made.Problem, marked); err != nil {
				t.Fatal(err)
			}
			if err := plans.Seal(made.Problem, marked); err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, c.ranks)
			w.must(func(comm *Comm) error {
				send, recv := make([]byte, 40000), make([]byte, 40000)
				call := Call{Comm: comm, Kind: c.kind, Type: c.shape.Type, Count: c.shape.Count, Peer: int32(c.shape.Root),
					Send: unsafe.Pointer(&send[0]), Recv: unsafe.Pointer(&recv[0])}
				if c.inPlace {
					call.Recv = call.Send
				}
				return Run([]Call{call})
			})
			agreed := w.comms[0].light.agreed
			if len(agreed) != 1 {
				t.Fatalf("%d plans were used", len(agreed))
			}
			for _, a := range agreed {
				if a.plan.Planner != "perstep" || a.plan.Digest != marked.Digest {
					t.Errorf("the plan in use is %s's", a.plan.Planner)
				}
			}
			if files := planFiles(t, store.Dir()); len(files) != 1 {
				t.Errorf("%d files in the cache", len(files))
			}
		})
	}
}

// TestWarmReplacesWhatIsUnusable: as the job itself would.
func TestWarmReplacesWhatIsUnusable(t *testing.T) {
	cfg, fab, store := warmSetup(t)
	call := CallShape{schedule.AllReduce, datatype.Float32, 1000, 0}
	if _, _, err := Warm(cfg, fab, 4, call, store); err != nil {
		t.Fatal(err)
	}
	damage(t, planFiles(t, store.Dir())[0])
	other, err := cache.Open(store.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if _, hit, err := Warm(cfg, fab, 4, call, other); err != nil || hit {
		t.Fatalf("hit %t, %v", hit, err)
	}
	list, err := other.List()
	if err != nil || len(list) != 1 || list[0].Err != nil {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestWarmRefuses(t *testing.T) {
	good := CallShape{schedule.AllReduce, datatype.Float32, 1000, 0}
	for name, c := range map[string]struct {
		ranks int
		call  CallShape
		edit  func(*Config, *fabric.Fabric)
		want  error
	}{
		"one rank":          {1, good, nil, ErrInvalidArgument},
		"too many ranks":    {5, good, nil, ErrInvalidArgument},
		"no elements":       {4, CallShape{schedule.AllReduce, datatype.Float32, 0, 0}, nil, ErrInvalidArgument},
		"too many elements": {4, CallShape{schedule.AllReduce, datatype.Float32, 1 << 62, 0}, nil, ErrInvalidArgument},
		"root of none":      {4, CallShape{schedule.AllReduce, datatype.Float32, 1000, 1}, nil, ErrInvalidArgument},
		"no such root":      {4, CallShape{schedule.Reduce, datatype.Float32, 1000, 4}, nil, ErrInvalidArgument},
		"no such type":      {4, CallShape{schedule.AllReduce, datatype.NumTypes, 1000, 0}, nil, ErrInvalidArgument},
		"point to point":    {4, CallShape{schedule.SendRecv, datatype.Float32, 1000, 0}, nil, ErrInvalidArgument},
		"present circuits":  {4, good, func(c *Config, _ *fabric.Fabric) { c.PlanCurrent = true }, ErrInvalidArgument},
		"no circuits":       {4, good, func(_ *Config, f *fabric.Fabric) { f.Planes[0].OCS = "" }, ErrInvalidArgument},
		"no plan": {4, good, func(c *Config, f *fabric.Fabric) {
			c.Planner, f.Forwarding, f.Planes = "static", false, f.Planes[:1]
		}, planner.ErrInfeasible},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, fab, store := warmSetup(t)
			if c.edit != nil {
				c.edit(cfg, fab)
			}
			if _, _, err := Warm(cfg, fab, c.ranks, c.call, store); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if files := planFiles(t, store.Dir()); len(files) != 0 {
				t.Errorf("%d files in the cache", len(files))
			}
		})
	}
}
