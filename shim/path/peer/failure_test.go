package peer_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/peer"
	"lightpath/shim/shimtest"
)

// TestLentHeld checks that a lender's stream stays in the launch while a kernel of a peer uses its buffer, even if the
// communicator fails. Afterwards all streams leave, including those of later launches.
func TestLentHeld(t *testing.T) {
	const count = 300 << 10
	for _, kind := range []calls.Kind{calls.AllReduce, calls.AllGather, calls.Send} {
		for aborts := range 3 {
			t.Run(fmt.Sprintf("%v/%d", kind, aborts), func(t *testing.T) {
				g := useLenders(t, 3)
				w := shimtest.NewWorld(t, 3)
				at := g.Memory(0, count)
				registerAll(t, w.Comms[0], at, count)
				held, release := make(chan struct{}), make(chan struct{})
				var once sync.Once
				g.Touching(func(s device.Stream, p unsafe.Pointer) {
					if s == g.Streams[0][0] || uintptr(p)-uintptr(at) >= count {
						return
					}
					once.Do(func() { close(held) })
					<-release
				})
				group := make([][]calls.Call, 3)
				for r, c := range w.Comms {
					call := calls.Call{Comm: c, Kind: kind, Type: datatype.Uint8, Count: count, Send: g.Memory(r, count),
						Recv: g.Memory(r, 3*count), Stream: g.Streams[r][0]}
					if r == 0 {
						call.Send = at
					}
					if kind == calls.AllReduce && r == 0 { // what others store there
						call.Send, call.Recv = call.Recv, at
					}
					if kind == calls.Send {
						call.Peer = int32((r + 1) % 3)
						from := call
						from.Kind, from.Peer = calls.Recv, int32((r+2)%3)
						group[r] = []calls.Call{from}
					}
					group[r] = append(group[r], call)
				}
				for range 4 {
					w.Must(func(c *shim.Comm) error { return shim.Run(group[c.Rank]) })
				}
				<-held
				require.NoError(t, w.Comms[aborts].Abort())
				if g.Synchronize(g.Streams[0][0], 100*time.Millisecond) {
					t.Error("the lender's stream is through while its buffer is used")
				}
				close(release)
				for r := range w.Comms {
					require.NoError(t, g.SynchronizeRank(r))
				}
			})
		}
	}
}

// TestLentFailing checks that after an abort no peer uses the lent buffers of a rank whose streams have left. Ranks
// have queued calls before.
func TestLentFailing(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rounds := 8
			if testing.Short() {
				rounds = 2
			}
			for round := range rounds {
				t.Run(fmt.Sprint(round), func(t *testing.T) { lendAndFail(t, n, uint64(round)) })
			}
		})
	}
}

// TestFailureHeard: a rank asks for errors after a failure of a peer, with no launch left. It gets the error before the
// reason has arrived, and if the reason never arrives.
func TestFailureHeard(t *testing.T) {
	for name, says := range map[string]bool{"why": true, "nothing": false} {
		t.Run(name, func(t *testing.T) {
			useLenders(t, 2)
			w := shimtest.NewWorld(t, 2)
			for _, c := range w.Comms {
				require.NoError(t, c.State())
			}
			w.SetTimeout(time.Second) // bounds the wait for the reason, too
			peer.ShutGates(peer.Of(w.Comms[1]))
			if says {
				go func() { _ = w.Comms[1].Abort() }()
			}
			if err := w.Comms[0].State(); err == nil {
				t.Error("rank 0 has heard of nothing")
			} else if !says {
				shimtest.WantError(t, err, errdefs.ErrRemote, "has not said why")
			}
			x := peer.Of(w.Comms[0])
			w.Destroy()
			<-peer.WatcherOver(x)
			if peer.PeerFailed(x) {
				t.Error("told by a page that is gone")
			}
		})
	}
}

// theirs is memory that a rank lends until its streams have left the launch.
type theirs struct {
	at      [2]uintptr
	through atomic.Bool
}

const failingCount = 300 << 10

func lendAndFail(t *testing.T, n int, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	g := useLenders(t, n)
	w := shimtest.NewWorld(t, n)
	memory := make([]theirs, n)
	rooms := make([][3]unsafe.Pointer, n)
	for r, c := range w.Comms {
		rooms[r][2] = g.Memory(r, n*failingCount)
		for i := range memory[r].at {
			rooms[r][i] = g.Memory(r, failingCount)
			registerAll(t, c, rooms[r][i], failingCount)
			memory[r].at[i] = uintptr(rooms[r][i])
		}
	}
	g.Touching(touchesOfOthers(t, g, memory))
	defer g.Touching(nil)
	kinds := make([]int, 24)
	for i := range kinds {
		kinds[i] = rng.IntN(3)
	}
	victim, at := rng.IntN(n), 2+rng.IntN(len(kinds)-2)
	_ = w.Each(func(c *shim.Comm) error {
		r := c.Rank
		for i, kind := range kinds {
			if r == victim && i == at {
				break
			}
			if shim.Run(failingCalls(w, kind, r, rooms[r], g.Streams[r][0])) != nil {
				break
			}
		}
		if r == victim {
			_ = c.Abort()
		}
		err := g.SynchronizeRank(r)
		memory[r].through.Store(err == nil)
		return err
	})
	for r := range n {
		if err := g.SynchronizeRank(r); err != nil {
			t.Fatalf("seed %d, rank %d aborts at call %d: %v", seed, victim, at, err)
		}
	}
	w.Destroy()
	if t.Failed() {
		t.Fatalf("seed %d, rank %d aborts at call %d", seed, victim, at)
	}
}

// failingCalls are the calls of a rank in a group of some kind.
func failingCalls(w *shimtest.World, kind, r int, room [3]unsafe.Pointer, s device.Stream) []calls.Call {
	n := len(w.Comms)
	call := calls.Call{Comm: w.Comms[r], Kind: calls.AllReduce, Type: datatype.Uint8, Count: failingCount, Send: room[0],
		Recv: room[1], Stream: s}
	switch kind {
	case 1:
		call.Kind, call.Recv = calls.AllGather, room[2]
	case 2:
		other := call
		call.Kind, call.Peer = calls.Send, int32((r+1)%n)
		other.Kind, other.Peer, other.Recv = calls.Recv, int32((r+n-1)%n), room[2]
		return []calls.Call{call, other}
	}
	return []calls.Call{call}
}

// touchesOfOthers is for [devicetest.Driver.Touching]. It checks that a rank's kernels use no memory of a peer whose
// streams have left. Each use takes some time.
func touchesOfOthers(t *testing.T, g *shimtest.GPUs, memory []theirs) func(device.Stream, unsafe.Pointer) {
	var touches atomic.Uint32
	return func(s device.Stream, p unsafe.Pointer) {
		for r := range memory {
			for _, at := range memory[r].at {
				if uintptr(p)-at >= failingCount || s == g.Streams[r][0] {
					continue
				}
				early := memory[r].through.Load()
				if touches.Add(1)%3 == 0 {
					time.Sleep(2 * time.Millisecond)
				}
				if memory[r].through.Load() {
					t.Errorf("a kernel uses memory of rank %d, which is through (when it began: %v)", r, early)
				}
			}
		}
	}
}
