package shim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/emulator"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/endpoints"
)

// outage takes planes out of service, as their controller would, for those who use it.
type outage struct {
	down  atomic.Uint64
	looks atomic.Int64 // at planes that are down, until all are back; 0: it is not looks that bring them back
}

// outageController is a controller of which some planes are out of service.
type outageController struct {
	endpoints.Client
	*outage
}

// Acquire implements ocsctl.Client.
func (c outageController) Acquire(mask, holder uint64) (uint64, error) {
	up := mask &^ c.down.Load()
	if up == 0 {
		return 0, fmt.Errorf("planes %#x: mirrors are being cleaned: %w", mask, ocsctl.ErrPlaneDown)
	}
	return c.Client.Acquire(up, holder)
}

// Poll implements ocsctl.Client.
func (c outageController) Poll(plane int) (uint32, error) {
	epoch, err := c.Client.Poll(plane)
	if c.down.Load()>>plane&1 != 0 {
		if c.looks.Load() > 0 && c.looks.Add(-1) == 0 {
			c.down.Store(0)
		}
		err = fmt.Errorf("plane %d epoch %d: mirrors are being cleaned: %w", plane, epoch, ocsctl.ErrPlaneDown)
	}
	return epoch, err
}

// over puts the outage between communicators and their controller.
func (o *outage) over(worlds ...*world) {
	for _, w := range worlds {
		for _, c := range w.comms {
			if _, twice := circuits.Of(c).Controller.Client.(outageController); !twice {
				circuits.Of(c).Controller.Client = outageController{circuits.Of(c).Controller.Client, o}
			}
		}
	}
}

// givenBack waits until nobody holds a plane.
func givenBack(t *testing.T, core *controller.Core) {
	t.Helper()
	if !settled(func() bool {
		s, err := core.Snapshot()
		return err == nil && !slices.ContainsFunc(s.Planes, func(p controller.PlaneSnapshot) bool { return p.Holder != nil })
	}) {
		t.Fatal("planes are not given back")
	}
}

// logTo has warnings written to a file, whose lines it returns a reader of.
func logTo(t *testing.T, level string) func() string {
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("NCCL_DEBUG", level)
	t.Setenv("NCCL_DEBUG_FILE", path)
	return func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// carried returns the frames that every plane has carried.
func carried(t testing.TB, s *emulator.Server) []uint64 {
	t.Helper()
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	frames := make([]uint64, len(stats))
	for j := range stats {
		frames[j] = stats[j].Frames
	}
	return frames
}

// TestPlanesGoAndComeBack: collectives go on with the planes that are left, with packet planes
// where none is, and with all of them when they are back. Every plane's counter says who
// carried what.
func TestPlanesGoAndComeBack(t *testing.T) {
	for _, env := range [][2]string{
		{"swot", "free"}, {"static", "current"},
	} {
		t.Run(env[0]+"/"+env[1], func(t *testing.T) {
			log := logTo(t, "WARN")
			server := lightFabric(t, 4, 3, nil)
			t.Setenv("LIGHTPATH_PLANNER", env[0])
			t.Setenv("LIGHTPATH_PLAN_INITIAL", env[1])
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
			for j := range 3 { // circuits that static plans find
				mustOf(t)(server.Core().Set(j, circuit.Shift(4, 1), "ann"))
			}
			w := newWorld(t, 4)
			var o outage
			o.over(w)
			rng := rand.New(rand.NewPCG(8, 8))
			for i, down := range []uint64{0, 0b010, 0b011, 0b111, 0b110, 0} {
				o.down.Store(down)
				before := carried(t, server)
				// Planes that are back are used from the next grant on.
				if !settled(func() bool {
					w.runAll(t, rng, 1500+i)
					for j, n := range carried(t, server) {
						if down>>j&1 == 0 && n == before[j] {
							return false
						}
					}
					return true
				}) {
					t.Errorf("planes %#b are down, and not all others carried frames: %v, then %v", down, before, carried(t, server))
				}
				for j, n := range carried(t, server) {
					if down>>j&1 != 0 && n != before[j] {
						t.Errorf("planes %#b are down, plane %d carried %d frames", down, j, n-before[j])
					}
				}
			}
			noLosses(t, server)
			for _, want := range []string{
				"plane p1 is out of service (plane 1", "mirrors are being cleaned", "going on with 2 of 3 planes", "no plane with circuits is in service",
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

// runAll runs every collective once.
func (w *world) runAll(t *testing.T, rng *rand.Rand, count int) {
	t.Helper()
	for _, kind := range oracleKinds {
		k := collectiveCase{kind: kind, typ: datatype.Float32, op: datatype.Sum, count: count, root: rng.IntN(len(w.comms)), inPlace: rng.IntN(2) == 0}
		if err := k.run(w, rng); err != nil {
			t.Fatalf("%v: %v", k, err)
		}
	}
}

// TestPlaneGoesUnderTwoCommunicators: a plane that goes while one communicator holds it and
// another waits for it is left out by both.
func TestPlaneGoesUnderTwoCommunicators(t *testing.T) {
	server := lightFabric(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	a, b := newWorld(t, 4), newWorld(t, 4)
	var o outage
	o.over(a, b)
	for round, down := range []uint64{0, 0b10, 0b11, 0b01, 0} {
		o.down.Store(down)
		for i, err := range concurrently(t, 8, func(i int) error {
			w := a
			if i >= 4 {
				w = b
			}
			for k := range 10 {
				buf := []float32{float32(k), 1, float32(round)}
				if err := Run([]calls.Call{allReduce(w.comms[i%4], buf)}); err != nil {
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
	noLosses(t, server)
}

// TestNewsTravelsSlowly: a rank that still sees the failure of a plane which the leader has been
// granted again waits for better news, but not for ever.
func TestNewsTravelsSlowly(t *testing.T) {
	core := lightFabric(t, 2, 2, nil).Core()
	w := newWorld(t, 2)
	var leader, other outage
	leader.over(worldOf(t, w.comms[:1]))
	other.over(worldOf(t, w.comms[1:]))
	call := func(c *Comm) error { return Run([]calls.Call{allReduce(c, make([]float32, 100))}) }
	leader.down.Store(0b10)
	other.down.Store(0b10)
	w.must(call)
	givenBack(t, core)
	leader.down.Store(0)
	other.looks.Store(20)
	w.must(call)
	if circuits.Of(w.comms[1]).Granted().Use != 0b11 {
		t.Errorf("planes %#b are in use", circuits.Of(w.comms[1]).Granted().Use)
	}
	givenBack(t, core)
	other.down.Store(0b01)
	for r, err := range w.each(call) {
		if !errors.Is(err, ocsctl.ErrPlaneDown) || !strings.Contains(err.Error(), "rank 1") || !strings.Contains(err.Error(), "plane 0 epoch") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestDegradedResultsAreTheSame: the planes in use decide how bytes are divided, never in which
// order they are added.
func TestDegradedResultsAreTheSame(t *testing.T) {
	lightFabric(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	w := newWorld(t, 4)
	var o outage
	o.over(w)
	sum := func() string {
		results := make([]string, 4)
		w.must(func(c *Comm) error {
			rng := rand.New(rand.NewPCG(1, uint64(c.Rank)))
			buf := make([]float32, 1001)
			for i := range buf {
				buf[i] = rng.Float32() - 0.5
			}
			err := Run([]calls.Call{allReduce(c, buf)})
			results[c.Rank] = fmt.Sprint(buf)
			return err
		})
		return fmt.Sprint(results)
	}
	whole := sum()
	for _, down := range []uint64{0b01, 0b10, 0} {
		o.down.Store(down)
		if sum() != whole {
			t.Errorf("without planes %#b the bits differ", down)
		}
	}
}
