package circuits_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/result"
	"lightpath/shim/session"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

// TestPlanDelayed: while the leader's planner is slow, operations run on the interim
// plan; once it has finished, all ranks change over at the same operation. Results do not
// change.
func TestPlanDelayed(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_FAULT", "plan-delay:500ms")
	w := shimtest.NewWorld(t, 4)
	k := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Float32, Count: 4001}
	rng := rand.New(rand.NewPCG(1, 2))
	inForce := func() (planners map[string]bool) {
		planners = map[string]bool{}
		for _, c := range w.Comms {
			for s, e := range session.Of(c).Programs.Programs {
				if s.Plan != 0 {
					planners[e.Plan.Planner] = true
				}
			}
		}
		return planners
	}
	require.NoError(t, k.Run(w, rng))
	if p := inForce(); !p["perstep"] || p["swot"] {
		t.Fatalf("while the planner is busy: programs of %v", p)
	}
	changed := shimtest.Eventually(func() bool {
		require.NoError(t, k.Run(w, rng))
		return inForce()["swot"]
	})
	if !changed {
		t.Error("the plan never came into force")
	}
	for _, c := range w.Comms {
		if n := len(circuits.Of(c).Known.Plans()); n != 2 {
			t.Errorf("rank %d knows %d plans, want the interim and the final one", c.Rank, n)
		}
	}
	shimtest.NoLosses(t, server)
}

// TestSlowRank: a rank that plans slowly, or that plans at all, matters only where it is
// the leader.
func TestSlowRank(t *testing.T) {
	shimtest.UseEmulator(t, 2, 1, nil)
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	cfg, err := settings.Load()
	require.NoError(t, err)
	errs := shimtest.Concurrently(t, 2, func(r int) error {
		mine := *cfg
		mine.Fault.PlanDelay = time.Duration(r) * time.Hour
		c, err := shimtest.InitOne(shim.InitArgs{ID: id, Ranks: 2, Rank: r}, &mine)
		if err != nil {
			return err
		}
		defer func() { _ = c.Destroy() }()
		for range 5 {
			if err := shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 100))}); err != nil {
				return err
			}
		}
		return nil
	})
	shimtest.NoErrors(t, errs)
}

// TestTwoCommunicatorsShareThePlanes runs two communicators over the same ports. Each rank has a thread per
// communicator, and ranks call in opposite orders. The controller grants planes all at once, so no communicator holds
// half.
func TestTwoCommunicatorsShareThePlanes(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	a, b := shimtest.NewWorld(t, 4), shimtest.NewWorld(t, 4)
	errs := shimtest.Concurrently(t, 8, func(i int) error {
		r, w := i%4, a
		if (i < 4) != (r%2 == 0) {
			w = b
		}
		c := w.Comms[r]
		for k := range 20 {
			buf := []float32{float32(k), 1}
			if err := shim.Run([]calls.Call{shimtest.AllReduce(c, buf)}); err != nil {
				return err
			}
			if buf[0] != float32(4*k) || buf[1] != 4 {
				return fmt.Errorf("call %d: %v", k, buf)
			}
		}
		return nil
	})
	shimtest.NoErrors(t, errs)
	shimtest.NoLosses(t, server)
}

// TestOneThreadOnCircuits: all ranks of a communicator in one group of one thread.
func TestOneThreadOnCircuits(t *testing.T) {
	shimtest.UseEmulator(t, 4, 2, nil)
	w := shimtest.NewWorld(t, 4)
	var calls []calls.Call
	var mem [4][]float32
	for r, c := range w.Comms {
		mem[r] = []float32{1, 2, 3}
		calls = append(calls, shimtest.AllReduce(c, mem[r]), shimtest.AllReduce(c, mem[r]))
	}
	if errs := shimtest.Concurrently(t, 1, func(int) error { return shim.Run(calls) }); errs[0] != nil {
		t.Fatal(errs[0])
	}
	for r := range mem {
		if mem[r][2] != 48 {
			t.Errorf("rank %d: %v", r, mem[r])
		}
	}
}

// TestSmallerThanTheFabric: two communicators on halves of the ports; each lays its
// circuits over those of the other.
func TestSmallerThanTheFabric(t *testing.T) {
	server := shimtest.UseEmulator(t, 6, 2, nil)
	a, b := shimtest.NewWorldAt(t, 4, 1, 3), shimtest.NewWorldAt(t, 0, 5, 2)
	rng := rand.New(rand.NewPCG(3, 3))
	for _, kind := range shimtest.OracleKinds {
		k := shimtest.Collective{Kind: kind, Type: datatype.Int64, Count: 333, Root: 1}
		for _, w := range []*shimtest.World{a, b} {
			require.NoError(t, k.Run(w, rng))
		}
	}
	shimtest.NoLosses(t, server)
}

// TestResetOutlastsTheOperation checks that planes go to the next communicator only after the reset that follows the
// last operation, though no rank waits for it.
func TestResetOutlastsTheOperation(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, func(f *fabric.Fabric) { f.OCS[0].Reconfig = 15 * time.Millisecond })
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	a, b := shimtest.NewWorld(t, 4), shimtest.NewWorld(t, 4)
	rng := rand.New(rand.NewPCG(4, 4))
	for range 3 {
		for _, w := range []*shimtest.World{a, b} {
			for _, kind := range []calls.Kind{calls.AllReduce, calls.AllToAll} {
				k := shimtest.Collective{Kind: kind, Type: datatype.Uint32, Count: 100}
				require.NoError(t, k.Run(w, rng))
			}
		}
	}
	shimtest.NoLosses(t, server)
}

// TestForeignCircuit: a port outside the communicator has a circuit to one of its ports. It goes dark with the first
// switch of the communicator.
func TestForeignCircuit(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 1, nil)
	t.Setenv("LIGHTPATH_PLANNER", "static")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	all := shimtest.NewWorld(t, 4)
	all.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 64))}) })
	part := shimtest.NewWorld(t, 2)
	p := circuits.Of(part.Comms[0])
	before := p.Controller.State(0)
	if m := before.Map; m[2] != 0 && m[3] != 0 && m[2] != 1 && m[3] != 1 {
		t.Fatalf("the static plan left %v", m)
	}
	k := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Float64, Count: 77}
	require.NoError(t, k.Run(part, rand.New(rand.NewPCG(5, 5))))
	for _, c := range part.Comms {
		used := false
		for s := range session.Of(c).Programs.Programs {
			used = used || s.Plan != 0
		}
		if !used {
			t.Errorf("rank %d used packet planes", c.Rank)
		}
	}
	if after := p.Controller.State(0); after.Epoch != before.Epoch+1 {
		t.Errorf("the communicator took %d switches, want 1: %v to %v", after.Epoch-before.Epoch, before.Map, after.Map)
	}
	all.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 64))}) })
	shimtest.NoLosses(t, server)
}

// TestAssignPorts: which port a rank takes.
func TestAssignPorts(t *testing.T) {
	for name, k := range map[string]struct {
		table []bootstrap.Hello
		want  string
	}{
		"none given":          {[]bootstrap.Hello{{Port: -1}, {Port: -1}}, "[0 1]"},
		"by the launcher":     {[]bootstrap.Hello{{Port: 3}, {Port: 1}}, "[3 1]"},
		"one process, no use": {[]bootstrap.Hello{{Port: 2}, {Port: 2}}, "[0 1]"},
		"launcher too large":  {[]bootstrap.Hello{{Port: 9}, {Port: 1}}, "[0 1]"},
		"given":               {[]bootstrap.Hello{{Port: 2, PortGiven: true}, {Port: 0, PortGiven: true}}, "[2 0]"},
		"given twice": {[]bootstrap.Hello{{Port: 2, PortGiven: true}, {Rank: 1, Port: 2, PortGiven: true}},
			"same port 2"},
		"given too large": {[]bootstrap.Hello{{Port: 4, PortGiven: true}, {Port: 2, PortGiven: true}},
			"port 4 on a fabric of 4"},
		"more than fabric": {make([]bootstrap.Hello, 5), "port 4"},
	} {
		ports, err := endpoints.AssignPorts(k.table, 4)
		if err != nil {
			shimtest.WantError(t, err, errdefs.ErrInvalidUsage, k.want)
		} else if fmt.Sprint(ports) != k.want {
			t.Errorf("%s: %v, want %s", name, ports, k.want)
		}
	}
}

// TestMismatchOnCircuits: different calls are found before anything is sent.
func TestMismatchOnCircuits(t *testing.T) {
	shimtest.UseEmulator(t, 3, 2, nil)
	w := shimtest.NewWorld(t, 3)
	shimtest.WantErrors(t, w.Each(func(c *shim.Comm) error {
		return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10+c.Rank/2))})
	}), errdefs.ErrMismatch, "count 10", "count 11", "rank 2")
}

// TestMissingRankOnCircuits: a ticket that is never complete.
func TestMissingRankOnCircuits(t *testing.T) {
	shimtest.UseEmulator(t, 3, 2, nil)
	w := shimtest.NewWorld(t, 3)
	w.SetTimeout(time.Second)
	for r, err := range w.Each(func(c *shim.Comm) error {
		if c.Rank == 1 {
			return nil
		}
		return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))})
	}) {
		if r != 1 {
			shimtest.WantError(t, err, errdefs.ErrTimeout, "rank 1 did not arrive")
		}
	}
}

// TestPlanCache: the second job takes the first one's plan; a damaged file is refused and
// planned again.
func TestPlanCache(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LIGHTPATH_PLAN_DIR", dir)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_TOLERANCE", "0") // this size alone
	shimtest.UseEmulator(t, 4, 2, func(f *fabric.Fabric) { f.Name = "cached" })
	job := func() planning.ID {
		w := shimtest.NewWorld(t, 4)
		defer w.Destroy()
		w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1000))}) })
		known := circuits.Of(w.Comms[0]).Known.Plans()
		if len(known) == 0 {
			t.Fatal("no plan")
		}
		id, err := planning.IDOf(known[0])
		require.NoError(t, err)
		return id
	}
	first := job()
	files := shimtest.PlanFiles(t, dir)
	if len(files) != 1 {
		t.Fatalf("%d files in the plan cache", len(files))
	}
	if job() != first {
		t.Error("the second job planned anew")
	}
	shimtest.CorruptPlan(t, files[0])
	if job() != first {
		t.Error("a damaged file changed the plan")
	}
}

// TestNoSwitch: an unreachable switch is an error at creation.
func TestNoSwitch(t *testing.T) {
	server := shimtest.UseEmulator(t, 2, 1, nil)
	require.NoError(t, server.Close())
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	_, err = shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: 0}})
	if err == nil || result.Of(err) != result.SystemError {
		t.Errorf("got %v, result %d", err, result.Of(err))
	}
}

// TestSwitchDies: when the switch goes away in the middle, everyone's call ends.
func TestSwitchDies(t *testing.T) {
	server := shimtest.UseEmulator(t, 2, 1, nil)
	w := shimtest.NewWorld(t, 2)
	time.AfterFunc(50*time.Millisecond, func() { _ = server.Close() })
	for r, err := range w.Each(func(c *shim.Comm) error {
		buf := make([]byte, 64)
		for {
			call := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: 64, Send: unsafe.Pointer(&buf[0]),
				Recv: unsafe.Pointer(&buf[0])}
			if err := shim.Run([]calls.Call{call}); err != nil {
				return err
			}
		}
	}) {
		if res := result.Of(err); res != result.SystemError && res != result.RemoteError {
			t.Errorf("rank %d: %v, result %d", r, err, res)
		}
	}
	if errors.Is(w.Comms[0].AsyncError(), errdefs.ErrInternal) {
		t.Error(w.Comms[0].AsyncError())
	}
}

// TestLoopOverSizes: calls of many sizes need few plans, since sizes share them; all ranks use
// the same, and results are right. With a tolerance of 0 every size has its own.
func TestLoopOverSizes(t *testing.T) {
	for _, tolerance := range []string{"0.01", "0"} {
		t.Run(tolerance, func(t *testing.T) {
			server := shimtest.UseEmulator(t, 4, 2, nil)
			t.Setenv("LIGHTPATH_PLANNER", "swot")
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
			t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
			t.Setenv("LIGHTPATH_PLAN_TOLERANCE", tolerance)
			w := shimtest.NewWorld(t, 4)
			rng := rand.New(rand.NewPCG(1, 2))
			const loops, few = 40, 8 // few sizes get plans of their own
			for i := range loops {
				k := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Float32, Count: 10000 + 500*i}
				require.NoError(t, k.Run(w, rng))
				if i == 0 && shimtest.PlansMade(w) != 1 {
					t.Errorf("%d plans for one size", shimtest.PlansMade(w))
				}
				if i == few {
					shimtest.Eventually(func() bool { return shimtest.PlansMade(w) > few+1 || tolerance == "0" })
				}
			}
			if n := shimtest.PlansMade(w); (n < loops/2) != (tolerance != "0") || n > loops {
				t.Errorf("%d plans for %d sizes", n, loops)
			}
			for r, c := range w.Comms {
				for _, p := range circuits.Of(c).Known.Plans() {
					if id, err := planning.IDOf(p); err != nil || circuits.Of(w.Comms[0]).Known.Lookup(id) == nil {
						t.Errorf("rank %d used a plan that the leader does not know", r)
					}
				}
			}
			shimtest.NoLosses(t, server)
		})
	}
}
