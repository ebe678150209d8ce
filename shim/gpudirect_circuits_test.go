package shim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/plans"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
)

// switchedGPUs has communicators of n ranks send from memory of devices over circuits of RDMA ports, which a controller moves.
func switchedGPUs(t *testing.T, n, streams, planes int) (*gpus, *crossbars) {
	t.Helper()
	dev := rdmaFabric(t, n, planes, plans.Duplex)
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_DEVICE_PATH", "rdma")
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
	driver := devicetest.NewRemote(Launches(), n)
	return useDriver(t, driver.Driver, driver, n, streams), dev
}

// lossless reports what circuits have lost.
func (c *crossbars) lossless(t *testing.T) {
	t.Helper()
	for j, x := range c.planes {
		if n := x.Lost(); n != 0 {
			t.Errorf("plane %d has lost %d requests", j, n)
		}
	}
}

// TestGPUDirectOverCircuits: random sequences of groups, of calls with plans and without, on streams and not, in graphs; against the oracle.
func TestGPUDirectOverCircuits(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := 2 + 2*int(seed%2)
			g, dev := switchedGPUs(t, n, 3, 1+int(seed)/2)
			w := newWorld(t, n)
			rng := rand.New(rand.NewPCG(seed, 21))
			for range 2 {
				g.sequence(w, rng, 9)
			}
			moved := 0
			for j := range dev.planes {
				moved += int(w.comms[0].light.at.State(j).Epoch)
			}
			if moved < 4 && n > 2 {
				t.Errorf("planes were moved %d times", moved)
			}
			if w.comms[0].dev.gdr.calls == 0 {
				t.Error("nothing has gone over circuits from memory of devices")
			}
			destroyAll(w)
			dev.lossless(t)
		})
	}
}

var _ = []any{slices.Contains[[]int], strings.Contains, unsafe.Pointer(nil), datatype.Uint8, device.Memory}
