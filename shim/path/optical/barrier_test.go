package optical_test

import (
	"testing"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/shimtest"
)

// sluggish is an endpoint whose planes take nothing until some time has passed.
type sluggish struct {
	transport.Endpoint
	planes []transport.Plane
}

func (s *sluggish) Planes() []transport.Plane { return s.planes }

// sluggishPlane is a plane of it, sluggishForwarder one that forwards.
type sluggishPlane struct {
	transport.Plane
	until time.Time
}

type sluggishForwarder struct {
	transport.Forwarder
	until time.Time
}

// TrySend implements transport.Plane.
func (p sluggishPlane) TrySend(h *wire.Header, payload []byte) (int, error) {
	if time.Now().Before(p.until) {
		return 0, nil
	}
	return p.Plane.TrySend(h, payload)
}

// TrySend implements transport.Plane.
func (p sluggishForwarder) TrySend(h *wire.Header, payload []byte) (int, error) {
	return sluggishPlane{p.Forwarder, p.until}.TrySend(h, payload)
}

// delay keeps a rank from sending anything on circuits for d.
func delay(w *shimtest.World, rank int, d time.Duration) {
	o := circuits.Of(w.Comms[rank])
	slow := &sluggish{Endpoint: o.End}
	for _, p := range o.End.Planes() {
		until := time.Now().Add(d)
		if f, ok := p.(transport.Forwarder); ok {
			p = sluggishForwarder{f, until}
		} else {
			p = sluggishPlane{p, until}
		}
		slow.planes = append(slow.planes, p)
	}
	o.End = slow
}

// TestWhoIsWaitedFor checks that ranks name the missing port if a rank does not reach a barrier, with every kind of
// controller.
func TestWhoIsWaitedFor(t *testing.T) {
	for name, start := range map[string]func(*testing.T){
		"here":      func(t *testing.T) { shimtest.UseEmulator(t, 4, 1, nil) },
		"elsewhere": func(t *testing.T) { shimtest.UseControllers(t, 4, 1, shimtest.SiteOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			start(t)
			t.Setenv("LIGHTPATH_PLANNER", "perstep")
			w := shimtest.NewWorld(t, 4)
			w.SetTimeout(time.Second)
			delay(w, 2, time.Minute)
			shimtest.WantErrors(t, w.Each(func(c *shim.Comm) error {
				return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1000))})
			}), exec.ErrTimeout, "rank ", "plane p0 epoch 1: waiting for ports 2")
		})
	}
}
