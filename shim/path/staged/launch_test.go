package staged_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/memory"
	"lightpath/shim/path/staged"
	"lightpath/shim/report"
	"lightpath/shim/shimtest"
)

// TestDeviceSequences compares random sequences of groups with the oracle. They use random streams, all kinds of
// memory, and no stream if a rank's buffers are host memory. Parts of them are captured and replayed.
func TestDeviceSequences(t *testing.T) {
	for _, transport := range []string{"inproc", "tcp"} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/%d", transport, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				t.Setenv("LIGHTPATH_STAGING", "64K")
				n := 1 + int(seed)%4
				g := shimtest.UseGPUs(t, n, 3)
				w := shimtest.NewWorld(t, n)
				for range shimtest.Repeats(3) {
					g.Sequence(w, rng, 12)
				}
			})
		}
	}
}

// TestLaunchAllocatesNothing repeats groups of known shapes: of one rank or several, in one step or in pieces, with
// scalars.
func TestLaunchAllocatesNothing(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := shimtest.UseGPUs(t, 2, 2)
	w := shimtest.NewWorld(t, 2)
	scalar := float32(1)
	scalars := []unsafe.Pointer{unsafe.Pointer(&scalar), g.Move(device.Memory, 1, make([]byte, 4)).At}
	for _, c := range []struct {
		name  string
		count int
	}{{"one step", 1000}, {"pieces", 100000}} {
		t.Run(c.name, func(t *testing.T) {
			var group []calls.Call
			for r, comm := range w.Comms {
				for i := range 2 {
					send, recv := g.Memory(r, 4*c.count), g.Memory(r, 8*c.count)
					group = append(group,
						calls.Call{Comm: comm, Kind: calls.AllReduce, Type: datatype.Float32, Count: uint64(c.count), Send: send,
							Recv: send, Stream: g.Streams[r][i]},
						calls.Call{Comm: comm, Kind: calls.AllReduce, Type: datatype.Float32, Op: calls.OpPreMulSum, Scalar: scalars[r],
							Count: uint64(c.count), Send: send, Recv: recv, Stream: g.Streams[r][0]},
						calls.Call{Comm: comm, Kind: calls.AllGather, Type: datatype.Float32, Count: uint64(c.count), Send: send,
							Recv: recv, Stream: g.Streams[r][0]},
						calls.Call{Comm: comm, Kind: calls.Send, Peer: int32(1 - r), Type: datatype.Float32, Count: uint64(c.count),
							Send: send, Stream: g.Streams[r][0]},
						calls.Call{Comm: comm, Kind: calls.Recv, Peer: int32(1 - r), Type: datatype.Float32, Count: uint64(c.count),
							Recv: recv, Stream: g.Streams[r][0]})
				}
			}
			w.AllocatesNothing(t, group)
		})
	}
}

// TestStagingIsBounded checks that page-locked memory does not grow with calls.
func TestStagingIsBounded(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := shimtest.UseGPUs(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	const count = 1 << 20
	w.Must(func(c *shim.Comm) error {
		r := c.Rank
		send, recv := g.Memory(r, 2*count), g.Memory(r, 2*count)
		for _, kind := range []calls.Kind{calls.AllReduce, calls.AllGather, calls.ReduceScatter, calls.AllToAll,
			calls.Broadcast} {
			call := calls.Call{Comm: c, Kind: kind, Type: datatype.Uint8, Count: count, Send: send, Recv: recv,
				Stream: g.Streams[r][0]}
			if err := shim.Run([]calls.Call{call}); err != nil {
				return err
			}
		}
		return g.SynchronizeRank(r)
	})
	bound := int64(2 * (4*64<<10 + memory.WordSize + shimtest.PageSize)) // for each rank two rooms of two pieces
	if _, most := g.Locked(); most > bound {
		t.Errorf("%d bytes were locked, want at most %d", most, bound)
	}
	if got, err := report.MemStats(w.Comms[0], report.MemPersist); err != nil || got < 4*64<<10 {
		t.Errorf("MemStats: %d, %v", got, err)
	}
}

// TestStepsOverlap checks that, while a step waits for another rank, the data of the next step is copied out and the
// results of the previous step are copied in. This holds in every launch, even if one stream orders the copies, but not
// in captured launches.
func TestStepsOverlap(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := shimtest.UseGPUs(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	const pieces = 6
	held, outs, ins := make(chan struct{}), make(chan int, 64), make(chan int, 64)
	seen := map[device.Stream]int{} // copies out of rank 1, by its only stream that copies out
	var out, in int
	g.Before(func(o devicetest.Op) {
		switch {
		case o.Stream == g.Streams[1][0] && o.Kind == devicetest.CopyOut:
			if seen[o.Stream]++; seen[o.Stream] == 3 {
				<-held // rank 1 does not come to its third step
			}
		case o.Stream == g.Streams[0][0] && o.Kind == devicetest.CopyOut:
			out++
			outs <- out
		case o.Kind == devicetest.CopyIn && o.Bytes > 0 && o.Stream == staged.Back(w.Comms[0]):
			in++
			ins <- in
		}
	})
	for r, c := range w.Comms {
		at := g.Memory(r, pieces<<16)
		call := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: pieces << 16, Send: at, Recv: at,
			Stream: g.Streams[r][0]}
		require.NoError(t, shim.Run([]calls.Call{call}))
	}
	// Rank 0 is in its third step, which waits for rank 1's: the fourth has been copied out, the second in.
	await := func(c chan int, want int) {
		t.Helper()
		for deadline := time.After(shimtest.DeviceTimeout); ; {
			select {
			case n := <-c:
				if n == want {
					return
				}
			case <-deadline:
				t.Fatalf("copy %d does not come", want)
			}
		}
	}
	await(outs, 4)
	await(ins, 2)
	select {
	case n := <-outs:
		t.Errorf("copy %d out, whose room is in use", n)
	case n := <-ins:
		t.Errorf("copy %d in, of a step that has not run", n)
	case <-time.After(20 * time.Millisecond):
	}
	close(held)
	for r := range 2 {
		require.NoError(t, g.SynchronizeRank(r))
	}
	g.Before(nil)
}

// TestAbortedLaunch checks that an abort frees a stream that waits for an absent rank, later launches, and launches
// that streams reach later.
func TestAbortedLaunch(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := shimtest.UseGPUs(t, 2, 2)
	w := shimtest.NewWorld(t, 2)
	at := g.Memory(0, 1<<20)
	gate := make(chan struct{})
	g.Before(func(o devicetest.Op) {
		if o.Stream == g.Streams[0][1] {
			<-gate
		}
	})
	for i := range 6 {
		s := g.Streams[0][i/5] // the last one behind the gate
		call := calls.Call{Comm: w.Comms[0], Kind: calls.AllReduce, Type: datatype.Uint8, Count: 1 << (10 + 2*uint(i%5)),
			Send: at, Recv: at, Stream: s}
		require.NoError(t, shim.Run([]calls.Call{call}))
	}
	require.NoError(t, w.Comms[0].Abort())
	if !g.Synchronize(g.Streams[0][0], shimtest.DeviceTimeout) {
		t.Fatal("the stream hangs")
	}
	close(gate)
	require.NoError(t, g.SynchronizeRank(0))
	if err := w.Comms[1].AsyncError(); err == nil {
		<-w.Comms[1].FailedChan()
	}
}

// TestPiecesOfOtherCalls checks that different calls and messages fail at their first pieces, although these are alike.
func TestPiecesOfOtherCalls(t *testing.T) {
	for _, transport := range []string{"inproc", "tcp"} {
		for _, kind := range []calls.Kind{calls.AllReduce, calls.Send} {
			t.Run(fmt.Sprint(transport, " ", kind), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				t.Setenv("LIGHTPATH_STAGING", "64K")
				g := shimtest.UseGPUs(t, 2, 1)
				w := shimtest.NewWorld(t, 2)
				for r, c := range w.Comms {
					at := g.Memory(r, 1<<20)
					call := calls.Call{Comm: c, Kind: kind, Type: datatype.Uint8, Peer: int32(1 - r), Count: uint64(2+r) << 16,
						Send: at, Recv: at, Stream: g.Streams[r][0]}
					if kind == calls.Send && r == 1 {
						call.Kind = calls.Recv
					}
					require.NoError(t, shim.Run([]calls.Call{call}))
				}
				<-w.Comms[0].FailedChan()
				if err := w.Comms[0].AsyncError(); err == nil || !strings.Contains(err.Error(), "different calls") {
					t.Error(err)
				}
				if err := errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
