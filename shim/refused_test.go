package shim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/device"
)

// TestRefusedByDriver: whatever a driver refuses, wherever, is an error, of the call or of the communicator, and no stream hangs.
func TestRefusedByDriver(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	eachRefusal(t, useGPUs, 1<<20, (*gpus).refusesPieces,
		"Locate", "Enter", "Capturing", "Alloc", "NewEvent", "NewStream", "Record", "Follow", "CopyOut", "CopyIn", "CopyRows", "Signal", "Await")
}

// eachRefusal has the driver refuse the methods' first calls, then their second, and so on, at most so many, until none fails.
func eachRefusal(t *testing.T, use func(t testing.TB, n, streams int) *gpus, most int,
	refuses func(g *gpus, w *world, method string, after int) (failed bool), methods ...string,
) {
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			for after, failed := 0, true; failed && after < most; after++ {
				t.Run(fmt.Sprint(after), func(t *testing.T) {
					g := use(t, 2, 2)
					w := newWorld(t, 2)
					failed = refuses(g, w, method, after)
					for _, c := range w.comms {
						_ = c.Abort()
					}
				})
				if after == 0 && !failed {
					t.Error("it is never called")
				}
			}
		})
	}
}

// refuses runs a group so many times, of which so many calls of a method succeed, and reports whether one has failed. The streams of
// both ranks must end.
func (g *gpus) refuses(calls []calls.Call, times int, method string, after int) (failed bool) {
	g.Fail(method, after)
	var err error
	for i := 0; i < times && err == nil; i++ {
		err = Run(calls)
	}
	g.Fail("", 0)
	if late := g.synchronizeBoth(); late != nil {
		g.t.Fatalf("after %d: %v", after, late)
	}
	if err != nil && (!errors.Is(err, device.ErrDriver) || !strings.Contains(err.Error(), method)) {
		g.t.Errorf("after %d: %v", after, err)
	}
	return err != nil
}

func (g *gpus) synchronizeBoth() error { return errors.Join(g.synchronize(0), g.synchronize(1)) }

// refusesPieces has a group in pieces refused.
func (g *gpus) refusesPieces(w *world, method string, after int) (failed bool) {
	const count = 70000
	var group []calls.Call
	for r, c := range w.comms {
		at, to := g.Memory(r, 2*count), g.Memory(r, 2*count)
		group = append(group,
			calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at, Stream: g.streams[r][0]},
			calls.Call{Comm: c, Kind: calls.AllToAll, Type: datatype.Uint8, Count: count, Send: at, Recv: to, Stream: g.streams[r][1]})
	}
	if !g.refuses(group, 2, method, after) {
		return false
	}
	switch method {
	case "Alloc", "Locate", "NewEvent", "NewStream", "Capturing": // nothing was on a stream: the communicators are as they were
		if err := errors.Join(Run(group), g.synchronizeBoth(), w.comms[0].AsyncError(), w.comms[1].AsyncError()); err != nil {
			g.t.Errorf("after %d: the next group: %v", after, err)
		}
	}
	return true
}

// TestCauseIsHeard: where one rank refuses and takes along what others are about to open, all give its reason.
func TestCauseIsHeard(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	t.Setenv("LIGHTPATH_DEVICE_PATH", "direct") // and there are no devices
	for range 10 {
		id, err := NewUniqueID()
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range concurrently(t, 4, func(r int) error {
			_, err := Init([]InitArgs{{ID: id, Ranks: 4, Rank: r}})
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), "LIGHTPATH_DEVICE_PATH=direct") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	}
}
