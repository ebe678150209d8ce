package peer_test

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/foreign"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// quietLibrary is another library that moves nothing.
type quietLibrary struct {
	groups, messages, destroyed, aborted atomic.Int64
	broken                               atomic.Bool
}

var errBroken = errors.New("broken")

func (l *quietLibrary) NewID() (id [foreign.IDBytes]byte, err error) {
	id[0] = 1
	return id, nil
}

func (l *quietLibrary) Make(inits []foreign.Init) ([]foreign.Comm, error) {
	made := make([]foreign.Comm, len(inits))
	for i := range made {
		made[i] = foreign.Comm(i + 1)
	}
	return made, nil
}

func (l *quietLibrary) Exchange(_ foreign.Comm, list []stream.Transfer, _ device.Stream) error {
	l.groups.Add(1)
	l.messages.Add(int64(len(list)))
	return nil
}

func (l *quietLibrary) AsyncError(foreign.Comm) error {
	if l.broken.Load() {
		return errBroken
	}
	return nil
}

func (l *quietLibrary) Abort(foreign.Comm) error   { l.aborted.Add(1); return nil }
func (l *quietLibrary) Destroy(foreign.Comm) error { l.destroyed.Add(1); return nil }

// interposedWorld is communicators whose AllReduce is interposed.
func interposedWorld(t *testing.T, n int) (*shimtest.GPUs, *shimtest.World, *quietLibrary) {
	t.Setenv("LIGHTPATH_NCCL_FALLBACK_LIB", "libnccl-of-a-test.so")
	t.Setenv("LIGHTPATH_FALLBACK", "interpose")
	t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:ring")
	g := shimtest.UsePeers(t, n, 1)
	t.Setenv("LIGHTPATH_DEVICE_PATH", "staged")
	w, lib := shimtest.NewWorld(t, n), &quietLibrary{}
	require.NoError(t, foreign.Attach(w.Comms, lib))
	t.Cleanup(func() {
		for _, c := range w.Comms {
			_ = c.Destroy()
		}
		for _, c := range w.Comms {
			<-c.Released()
		}
	})
	return g, w, lib
}

// TestInterposeAllocatesNothing: without circuits a call is put on its stream, as groups, without allocating.
func TestInterposeAllocatesNothing(t *testing.T) {
	const count = 1000
	g, w, lib := interposedWorld(t, 3)
	var group []calls.Call
	for r, c := range w.Comms {
		at := g.Memory(r, 4*count)
		group = append(group, calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Float32, Op: datatype.Avg,
			Count: count, Send: at, Recv: at, Stream: g.Streams[r][0]})
	}
	launch := func() {
		require.NoError(t, shim.Run(group))
		for _, c := range w.Comms {
			for !stream.Of(c).Over() {
				runtime.Gosched()
			}
		}
	}
	launch()
	if groups, messages := lib.groups.Load(), lib.messages.Load(); groups != 3*4 || messages != 3*4*2 {
		t.Errorf("a ring of 3 ranks is %d groups of %d messages", groups, messages)
	}
	launch()
	if shimtest.RaceEnabled {
		return // the race detector makes sync.Pool forget
	}
	if n := testing.AllocsPerRun(20, launch); n != 0 {
		t.Errorf("%v allocations per group", n)
	}
}

// TestInterposes: which calls are interposed depends on the call.
func TestInterposes(t *testing.T) {
	g, w, _ := interposedWorld(t, 2)
	at := g.Memory(0, 4096)
	for _, c := range []struct {
		kind  calls.Kind
		count uint64
		want  bool
	}{{calls.AllReduce, 10, true}, {calls.AllReduce, 0, false}, {calls.Broadcast, 10, false}, {calls.Send, 10, false}} {
		yes, err := foreign.Executes(&calls.Call{Comm: w.Comms[0], Kind: c.kind, Type: datatype.Int32, Count: c.count,
			Send: at, Recv: at, Stream: g.Streams[0][0]})
		if err != nil || yes != c.want {
			t.Errorf("%v of %d: %v, %v", c.kind, c.count, yes, err)
		}
	}
	if _, err := foreign.Executes(&calls.Call{Comm: w.Comms[0], Kind: calls.AllReduce, Type: datatype.Int32, Count: 10,
		Send: at}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("recvbuff is NULL: %v", err)
	}
}

// TestInterposerBreaks checks that an asynchronous error of the other library fails the communicator on all ranks, and
// aborts the other library's communicators.
func TestInterposerBreaks(t *testing.T) {
	_, w, lib := interposedWorld(t, 2)
	lib.broken.Store(true)
	if err := w.Comms[1].State(); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("rank 1: %v", err)
	}
	<-w.Comms[0].FailedChan()
	for lib.aborted.Load() < 2 {
		runtime.Gosched()
	}
}
