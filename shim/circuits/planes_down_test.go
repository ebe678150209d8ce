package circuits_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/shimtest"
)

// TestPlanesGoAndComeBack: collectives go on with the planes that are left, with packet planes
// where none is, and with all of them when they are back. Every plane's counter says who
// carried what.
func TestPlanesGoAndComeBack(t *testing.T) {
	for _, env := range [][2]string{
		{"swot", "free"}, {"static", "current"},
	} {
		t.Run(env[0]+"/"+env[1], func(t *testing.T) {
			log := shimtest.UseLogFile(t, "WARN")
			server := shimtest.UseEmulator(t, 4, 3, nil)
			t.Setenv("LIGHTPATH_PLANNER", env[0])
			t.Setenv("LIGHTPATH_PLAN_INITIAL", env[1])
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
			for j := range 3 { // circuits that static plans find
				shimtest.Fatal(t)(server.Core().Set(j, circuit.Shift(4, 1), "ann"))
			}
			w := shimtest.NewWorld(t, 4)
			var o shimtest.Outage
			o.Apply(w)
			rng := rand.New(rand.NewPCG(8, 8))
			for i, down := range []uint64{0, 0b010, 0b011, 0b111, 0b110, 0} {
				o.Down.Store(down)
				before := shimtest.FramesByPlane(t, server)
				// Planes that are back are used from the next grant on.
				if !shimtest.Eventually(func() bool {
					w.RunAll(t, rng, 1500+i)
					for j, n := range shimtest.FramesByPlane(t, server) {
						if down>>j&1 == 0 && n == before[j] {
							return false
						}
					}
					return true
				}) {
					t.Errorf("planes %#b are down, and not all others carried frames: %v, then %v", down, before,
						shimtest.FramesByPlane(t, server))
				}
				for j, n := range shimtest.FramesByPlane(t, server) {
					if down>>j&1 != 0 && n != before[j] {
						t.Errorf("planes %#b are down, plane %d carried %d frames", down, j, n-before[j])
					}
				}
			}
			shimtest.NoLosses(t, server)
			for _, want := range []string{
				"plane p1 is out of service (plane 1", "mirrors are being cleaned", "going on with 2 of 3 planes",
				"no plane with circuits is in service",
				"plane p0 is back in service; going on with 1 of 3 planes", "going on with 3 of 3 planes",
			} {
				if strings.Count(log(), want) == 0 {
					t.Errorf("the log does not say %q:\n%s", want, log())
				}
			}
			if n := strings.Count(log(), "plane p2 is out of service"); n != 1 {
				t.Errorf("the log says %d times that plane p2 is gone:\n%s", n, log())
			}
		})
	}
}

// TestPlaneGoesUnderTwoCommunicators: a plane that goes while one communicator holds it and
// another waits for it is left out by both.
func TestPlaneGoesUnderTwoCommunicators(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	a, b := shimtest.NewWorld(t, 4), shimtest.NewWorld(t, 4)
	var o shimtest.Outage
	o.Apply(a, b)
	for round, down := range []uint64{0, 0b10, 0b11, 0b01, 0} {
		o.Down.Store(down)
		for i, err := range shimtest.Concurrently(t, 8, func(i int) error {
			w := a
			if i >= 4 {
				w = b
			}
			for k := range 10 {
				buf := []float32{float32(k), 1, float32(round)}
				if err := shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[i%4], buf)}); err != nil {
					return err
				}
				if buf[0] != float32(4*k) || buf[1] != 4 || buf[2] != float32(4*round) {
					return fmt.Errorf("round %d call %d: %v", round, k, buf)
				}
			}
			return nil
		}) {
			if err != nil {
				t.Fatalf("round %d thread %d: %v", round, i, err)
			}
		}
	}
	shimtest.NoLosses(t, server)
}

// TestNewsTravelsSlowly: a rank that still sees the failure of a plane which the leader has been
// granted again waits for better news, but not for ever.
func TestNewsTravelsSlowly(t *testing.T) {
	core := shimtest.UseEmulator(t, 2, 2, nil).Core()
	w := shimtest.NewWorld(t, 2)
	var leader, other shimtest.Outage
	leader.Apply(shimtest.WorldOf(t, w.Comms[:1]))
	other.Apply(shimtest.WorldOf(t, w.Comms[1:]))
	call := func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 100))}) }
	leader.Down.Store(0b10)
	other.Down.Store(0b10)
	w.Must(call)
	shimtest.AwaitReleased(t, core)
	leader.Down.Store(0)
	other.Polls.Store(20)
	w.Must(call)
	if circuits.Of(w.Comms[1]).Machine.Ticket().Use != 0b11 {
		t.Errorf("planes %#b are in use", circuits.Of(w.Comms[1]).Machine.Ticket().Use)
	}
	shimtest.AwaitReleased(t, core)
	other.Down.Store(0b01)
	for r, err := range w.Each(call) {
		if !errors.Is(err, ocsctl.ErrPlaneDown) || !strings.Contains(err.Error(), "rank 1") ||
			!strings.Contains(err.Error(), "plane 0 epoch") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestDegradedResultsAreTheSame: the planes in use decide how bytes are divided, never in which
// order they are added.
func TestDegradedResultsAreTheSame(t *testing.T) {
	shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	w := shimtest.NewWorld(t, 4)
	var o shimtest.Outage
	o.Apply(w)
	sum := func() string {
		results := make([]string, 4)
		w.Must(func(c *shim.Comm) error {
			rng := rand.New(rand.NewPCG(1, uint64(c.Rank)))
			buf := make([]float32, 1001)
			for i := range buf {
				buf[i] = rng.Float32() - 0.5
			}
			err := shim.Run([]calls.Call{shimtest.AllReduce(c, buf)})
			results[c.Rank] = fmt.Sprint(buf)
			return err
		})
		return fmt.Sprint(results)
	}
	whole := sum()
	for _, down := range []uint64{0b01, 0b10, 0} {
		o.Down.Store(down)
		if sum() != whole {
			t.Errorf("without planes %#b the bits differ", down)
		}
	}
}
