package circuits_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/planeset"
	"lightpath/shim/result"
	"lightpath/shim/shimtest"
)

// TestControllerElsewhere runs every collective with a controller that is reached over gRPC, on
// planes that are interfaces.
func TestControllerElsewhere(t *testing.T) {
	for _, name := range []string{"swot", "auto"} {
		t.Run(name, func(t *testing.T) {
			shimtest.UseControllers(t, 4, 2, shimtest.SiteOptions{})
			t.Setenv("LIGHTPATH_PLANNER", name)
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			w := shimtest.NewWorld(t, 4)
			rng := rand.New(rand.NewPCG(4, 4))
			for _, count := range []int{1, 1000, 40001} {
				w.RunAll(t, rng, count)
			}
		})
	}
}

// TestPlaneDisabled: what an operator takes out of service two communicators leave out, and use
// again when it is back; the log says whose doing it is.
func TestPlaneDisabled(t *testing.T) {
	log := shimtest.UseLogFile(t, "WARN")
	s := shimtest.UseControllers(t, 4, 2, shimtest.SiteOptions{})
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	a, b := shimtest.NewWorld(t, 4), shimtest.NewWorld(t, 4)
	core := s.Controllers[0].Core
	uses := func(use planeset.Set) bool {
		return shimtest.Eventually(func() bool {
			for i, err := range shimtest.Concurrently(t, 8, func(i int) error {
				buf := []float32{float32(i % 4), 1}
				err := shim.Run([]calls.Call{shimtest.AllReduce([]*shimtest.World{a, b}[i/4].Comms[i%4], buf)})
				if err == nil && (buf[0] != 6 || buf[1] != 4) {
					err = fmt.Errorf("%v", buf)
				}
				return err
			}) {
				if err != nil {
					t.Fatalf("rank %d: %v", i%4, err)
				}
			}
			return circuits.Of(a.Comms[1]).Machine.Ticket().Use == use && circuits.Of(b.Comms[2]).Machine.Ticket().Use == use
		})
	}
	if !uses(0b11) {
		t.Error("not all planes are in use")
	}
	for _, c := range []struct{ disable, enable, use planeset.Set }{{0b10, 0, 0b01}, {0b01, 0, 0}, {0, 0b10, 0b10},
		{0, 0b01, 0b11}} {
		for j := range c.disable.Each() {
			require.NoError(t, core.Disable(j, "mirrors are being cleaned", "ops"))
		}
		for j := range c.enable.Each() {
			require.NoError(t, core.Enable(j, "ops"))
		}
		if !uses(c.use) {
			t.Errorf("planes %#b are in service, %#b in use", c.use, circuits.Of(a.Comms[1]).Machine.Ticket().Use)
		}
	}
	assert.Contains(t, log(), "plane p1 is out of service", "disabled by ops: mirrors are being cleaned",
		"going on with 1 of 2 planes", "plane p0 is back in service")
}

// TestPlaneBreaks: a switch that fails in the middle of an operation ends that with the rank, the
// plane, the epoch and the reason. A communicator that was between two operations goes on without
// it, also where it shares the attachments, as do later ones, until an operator puts it back.
func TestPlaneBreaks(t *testing.T) {
	s := shimtest.UseControllers(t, 4, 2, shimtest.SiteOptions{})
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w, other := shimtest.NewWorld(t, 4), shimtest.NewWorld(t, 4)
	rng := rand.New(rand.NewPCG(1, 1))
	w.RunAll(t, rng, 1000)
	other.RunAll(t, rng, 1000)
	for _, c := range append(w.Comms, other.Comms...) {
		circuits.Of(c).Quiesce() // a failure between two operations, at which no rank waits
	}
	s.Device.Break(1, errors.New("mirror 7 is stuck"))
	for r, err := range w.Each(func(c *shim.Comm) error {
		return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 5000))})
	}) {
		shimtest.WantError(t, err, ocsctl.ErrReconfFailed, "rank ", "plane 1 epoch", "mirror 7 is stuck")
		if result.Of(err) != result.SystemError {
			t.Errorf("rank %d: result %d", r, result.Of(err))
		}
	}
	w.Destroy()
	uses := func(w *shimtest.World, want planeset.Set) {
		t.Helper()
		w.RunAll(t, rng, 777)
		if use := circuits.Of(w.Comms[3]).Machine.Ticket().Use; use != want {
			t.Errorf("planes %#b are in use, want %#b", use, want)
		}
	}
	uses(other, 0b01)
	uses(shimtest.NewWorld(t, 4), 0b01)
	s.Device.Break(1, nil)
	require.NoError(t, s.Controllers[0].Core.Set(1, circuit.AllDark(4), "ops"))
	shimtest.AwaitReleased(t, s.Controllers[0].Core)
	uses(other, 0b11)
}

// TestTakeover: a controller ends while collectives run, and another takes over. The ranks notice
// nothing but the time.
func TestTakeover(t *testing.T) {
	s := shimtest.UseControllers(t, 4, 2, shimtest.SiteOptions{Controllers: 3})
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	w := shimtest.NewWorld(t, 4)
	var stop sync.WaitGroup
	done := make(chan struct{})
	stop.Go(func() {
		defer close(done)
		for i := range s.Controllers[1:] {
			time.Sleep(100 * time.Millisecond)
			s.Controllers[i].Stop()
			s.Controllers[i+1].TakeOver()
		}
		time.Sleep(300 * time.Millisecond)
	})
	rng := rand.New(rand.NewPCG(9, 9))
	for n := 0; ; n++ {
		w.RunAll(t, rng, 1000+n)
		select {
		case <-done:
			t.Logf("%d rounds", n+1)
			stop.Wait()
			return
		default:
		}
	}
}

// TestTakeoverBetweenOperations: a controller that knows no more than below which epoch the planes
// are begins there; a communicator that holds them goes along.
func TestTakeoverBetweenOperations(t *testing.T) {
	s := shimtest.UseControllers(t, 3, 2, shimtest.SiteOptions{Controllers: 2})
	s.Book.Jump = 1000
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w := shimtest.NewWorld(t, 3)
	rng := rand.New(rand.NewPCG(9, 9))
	w.RunAll(t, rng, 100)
	for _, c := range w.Comms {
		circuits.Of(c).Quiesce()
	}
	s.Controllers[0].Stop()
	s.Controllers[1].TakeOver()
	if !shimtest.Eventually(func() bool { return circuits.Of(w.Comms[0]).Controller.State(0).Epoch >= 1000 }) {
		t.Fatal("the leader has not found the other controller")
	}
	w.RunAll(t, rng, 101)
	if e := circuits.Of(w.Comms[2]).Machine.Standing()[0].Epoch; e < 1000 {
		t.Errorf("plane 0 is at epoch %d", e)
	}
}

// TestNobodyTakesOver: without a controller every call ends when the client has given up, or the operation.
func TestNobodyTakesOver(t *testing.T) {
	s := shimtest.UseControllers(t, 2, 1, shimtest.SiteOptions{})
	t.Setenv("LIGHTPATH_TIMEOUT", "6s") // also bounds the making of communicators
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w := shimtest.NewWorld(t, 2)
	w.SetTimeout(time.Second)
	time.AfterFunc(50*time.Millisecond, s.Controllers[0].Stop)
	for r, err := range w.Each(func(c *shim.Comm) error {
		for {
			if err := shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 5000))}); err != nil {
				return err
			}
		}
	}) {
		// An operation that was under way may give up before the client does.
		if result.Of(err) != result.Timeout && !errors.Is(err, ocsctl.ErrControlLost) {
			t.Errorf("rank %d: %v, result %d", r, err, result.Of(err))
		}
	}
}

// TestControllerOfAnotherVersion: refused at the beginning, naming both.
func TestControllerOfAnotherVersion(t *testing.T) {
	shimtest.UseControllers(t, 2, 1, shimtest.SiteOptions{Version: "9.9.9"})
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	_, err = shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}})
	// A rank that has no answer yet gives the error of the other.
	assert.Contains(t, fmt.Sprint(err), ocsctl.ErrVersion.Error(), "9.9.9", shim.Version)
}

// TestPlanesLeaveNothing: communicators on interfaces, with a controller elsewhere, give back
// sockets, memory and goroutines.
func TestPlanesLeaveNothing(t *testing.T) {
	shimtest.UseControllers(t, 2, 2, shimtest.SiteOptions{})
	cycle := func() {
		w := shimtest.NewWorld(t, 2)
		w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) })
		w.Destroy()
	}
	cycle() // a resource that the process makes once
	before := shimtest.CountResources(t)
	for range 10 {
		cycle()
	}
	before.Await(t)
}
