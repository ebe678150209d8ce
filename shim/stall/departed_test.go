package stall_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// party makes the calls of one communicator whose ranks do not all make as many. Rank r has memory of floats at[r].
type party struct {
	*shimtest.World
	at     []unsafe.Pointer
	stream []device.Stream // nil: the calls have none
}

// departureCount is how many floats each call moves: more than a slot of any path holds.
const departureCount = 1 << 18

// departureCalls are the kinds of calls that wait for a rank that has left.
var departureCalls = []string{"AllReduce", "Recv", "group"}

// call makes one call of a rank.
func (p *party) call(rank int, kind string) error {
	c, n := p.Comms[rank], len(p.Comms)
	base := calls.Call{
		Comm: c, Kind: calls.AllReduce, Type: datatype.Float32, Count: departureCount / uint64(n), Send: p.at[rank],
		Recv: unsafe.Add(p.at[rank], 4*departureCount),
	}
	if p.stream != nil {
		base.Stream = p.stream[rank]
	}
	group := []calls.Call{base}
	message := func(kind calls.Kind, peer int) calls.Call {
		m := base
		m.Kind, m.Peer = kind, int32(peer)
		return m
	}
	switch kind {
	case "Recv": // round the ring, in one group of two, so that no rank waits for all
		group = []calls.Call{message(calls.Send, (rank+1)%n), message(calls.Recv, (rank+n-1)%n)}
	case "group":
		group = group[:0]
		for peer := range n {
			if peer != rank {
				group = append(group, message(calls.Send, peer), message(calls.Recv, peer))
			}
		}
	}
	return shim.Run(group)
}

// leave has all ranks make two calls, and all but one a third. The leaver destroys its communicator after two, and the
// others get an error that names it, without waiting for LIGHTPATH_TIMEOUT.
func (p *party) leave(t *testing.T, kind string, leaver int) {
	errs := shimtest.Concurrently(t, len(p.Comms), func(r int) error {
		for range 2 {
			if err := p.call(r, kind); err != nil {
				return fmt.Errorf("rank %d in a call that all make: %w", r, err)
			}
		}
		if r == leaver {
			return p.Comms[r].Destroy()
		}
		err := p.call(r, kind)
		if err == nil { // it is on its stream
			<-p.Comms[r].FailedChan()
			err = p.Comms[r].AsyncError()
		}
		return err
	})
	for r, err := range errs {
		if r == leaver {
			assert.NoError(t, err)
			continue
		}
		shimtest.WantError(t, err, errdefs.ErrRemote,
			fmt.Sprintf("rank %d (", leaver), "destroyed its communicator after", "waits for it in")
	}
}

// leaving is one party and how a rank leaves it.
type leaving struct {
	*party
	name, kind string
	leaver     int
}

// leavings makes a party for each kind of call and leaver.
func leavings(name string, make func(n int) *party) (all []leaving) {
	for _, kind := range departureCalls {
		for _, leaver := range []int{0, 2} {
			all = append(all, leaving{make(3), fmt.Sprint(name, "/", kind, "/", leaver), kind, leaver})
		}
	}
	return all
}

// leaveAll runs all at the same time: each waits for its own stall.
func leaveAll(t *testing.T, all []leaving) {
	var wg sync.WaitGroup
	for _, x := range all {
		wg.Go(func() {
			if x.leave(t, x.kind, x.leaver); t.Failed() {
				t.Log("failed by now: ", x.name)
			}
		})
	}
	wg.Wait()
}

// usePathOnly is [shimtest.UsePath] for three ranks, after another path.
func usePathOnly(t *testing.T, path string) {
	t.Helper()
	for _, name := range []string{"LIGHTPATH_ALGORITHM", "LIGHTPATH_FABRIC", "LIGHTPATH_PLANES"} {
		t.Setenv(name, "")
	}
	shimtest.UsePath(t, path, 3)
}

// TestDeparted: a rank that has destroyed its communicator after its last call is an error for ranks that need its next
// call, and for no others.
func TestDeparted(t *testing.T) {
	var all []leaving
	for _, path := range paths {
		usePathOnly(t, path)
		all = append(all, leavings(path, func(n int) *party {
			p := &party{World: shimtest.NewWorld(t, n)}
			for range n {
				p.at = append(p.at, unsafe.Pointer(&make([]float32, 2*departureCount)[0]))
			}
			return p
		})...)
	}
	leaveAll(t, all)
}

// devicePaths gives three ranks devices with some streams each, by how the devices reach each other.
var devicePaths = map[string]func(t *testing.T, streams int) *shimtest.GPUs{
	"staged":  func(t *testing.T, streams int) *shimtest.GPUs { return shimtest.UseGPUs(t, 3, streams) },
	"direct":  func(t *testing.T, streams int) *shimtest.GPUs { return shimtest.UsePeers(t, 3, streams) },
	"through": func(t *testing.T, streams int) *shimtest.GPUs { return shimtest.UseGPUDirect(t, 3, streams, 2).GPUs },
}

// TestDepartedOnDevices is TestDeparted for calls on streams.
func TestDepartedOnDevices(t *testing.T) {
	for name, use := range devicePaths {
		t.Run(name, func(t *testing.T) {
			const streams = 6 // one for each party
			g, used := use(t, streams), 0
			leaveAll(t, leavings(name, func(n int) *party {
				p := &party{World: shimtest.NewWorld(t, n)}
				for r := range n {
					p.at, p.stream = append(p.at, g.Memory(r, 8*departureCount)), append(p.stream, g.Streams[r][used])
				}
				used++
				return p
			}))
		})
	}
}

// leaveAfter has ranks 0 and 2 exchange a message with rank 1, late and later, and leave when it has ended. Rank 1 waits
// for both in one group. All that rank 0 sent has come when it leaves, so nothing is missing.
func leaveAfter(t *testing.T, name string, w *shimtest.World, there calls.Kind,
	message func(rank int, kind calls.Kind, peer int32) calls.Call, ended func(rank int) error) {
	late := comm.MaxStallInterval * 3 / 2 // the wait is seen
	back := calls.Send + calls.Recv - there
	for r, err := range shimtest.Concurrently(t, 3, func(r int) error {
		var group []calls.Call
		if r == 1 {
			group = append(group, message(1, back, 0), message(1, back, 2))
		} else {
			time.Sleep(late + time.Duration(r)*late)
			group = append(group, message(r, there, 1))
		}
		if err := shim.Run(group); err != nil {
			return err
		}
		if err := ended(r); err != nil {
			return err
		}
		return w.Comms[r].Destroy()
	}) {
		if err != nil {
			t.Errorf("%s, %v, rank %d: %v", name, there, r, err)
		}
	}
}

// TestDepartedAfterSending: a rank that has sent or received all is not missing when it has left.
func TestDepartedAfterSending(t *testing.T) {
	var wg sync.WaitGroup
	for _, path := range paths {
		usePathOnly(t, path)
		for _, there := range []calls.Kind{calls.Send, calls.Recv} {
			w := shimtest.NewWorld(t, 3)
			message := func(rank int, kind calls.Kind, peer int32) calls.Call {
				m := shimtest.AllReduce(w.Comms[rank], make([]float32, departureCount))
				m.Kind, m.Peer = kind, peer
				return m
			}
			wg.Go(func() { leaveAfter(t, path, w, there, message, func(int) error { return nil }) })
		}
	}
	wg.Wait()
}

// TestDepartedAfterSendingOnDevices is TestDepartedAfterSending for calls on streams.
func TestDepartedAfterSendingOnDevices(t *testing.T) {
	for name, use := range devicePaths {
		t.Run(name, func(t *testing.T) {
			g := use(t, 1)
			w := shimtest.NewWorld(t, 3)
			leaveAfter(t, name, w, calls.Send, func(rank int, kind calls.Kind, peer int32) calls.Call {
				m := shimtest.AllReduce(w.Comms[rank], nil)
				m.Kind, m.Peer, m.Count, m.Stream = kind, peer, departureCount, g.Streams[rank][0]
				m.Send = g.Memory(rank, 4*departureCount)
				m.Recv = m.Send
				return m
			}, g.SynchronizeRank)
		})
	}
}

// TestDepartedElsewhere: ranks that do not need a departed rank go on, the leader included.
func TestDepartedElsewhere(t *testing.T) {
	for _, path := range []string{"arena", "tcp"} {
		for leaver := range 3 {
			t.Run(fmt.Sprint(path, leaver), func(t *testing.T) {
				shimtest.UsePath(t, path, 3)
				w := shimtest.NewWorld(t, 3)
				w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) })
				require.NoError(t, w.Comms[leaver].Destroy())
				a, b := w.Comms[(leaver+1)%3], w.Comms[(leaver+2)%3]
				told := time.Now().Add(20 * time.Second)
				for len(a.Departures()) == 0 || len(b.Departures()) == 0 {
					if time.Now().After(told) {
						t.Fatal("ranks are not told of a departure")
					}
					time.Sleep(time.Millisecond)
				}
				errs := shimtest.Concurrently(t, 2, func(i int) error {
					c, peer := a, b
					if i == 1 {
						c, peer = b, a
					}
					return exchange(c, peer)
				})
				for _, err := range errs {
					assert.NoError(t, err)
				}
			})
		}
	}
}

// exchange sends to a rank and receives from it.
func exchange(c, peer *comm.Core) error {
	send, recv := shimtest.AllReduce(c, make([]float32, 1000)), shimtest.AllReduce(c, make([]float32, 1000))
	send.Kind, send.Peer, recv.Kind, recv.Peer = calls.Send, int32(peer.Rank), calls.Recv, int32(peer.Rank)
	return shim.Run([]calls.Call{send, recv})
}

// TestDepartedLeaderEnds: after the leader's process has ended too, ranks that need no ticket of it go on. The others
// get an error that names it.
func TestDepartedLeaderEnds(t *testing.T) {
	for path, fails := range map[string]bool{"arena": false, "tcp": false, "circuits": true} {
		t.Run(path, func(t *testing.T) {
			shimtest.UsePath(t, path, 3)
			w := shimtest.NewWorld(t, 3)
			w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) })
			require.NoError(t, w.Comms[0].Destroy())
			w.Comms[0].Star.Close() // as the end of its process does
			for r, err := range shimtest.Concurrently(t, 2, func(i int) error { return exchange(w.Comms[1+i], w.Comms[2-i]) }) {
				switch {
				case fails:
					shimtest.WantError(t, err, errdefs.ErrRemote, "rank 0 (", "has ended; it destroyed its communicator after 1 call")
				case err != nil:
					t.Errorf("rank %d: %v", 1+r, err)
				}
			}
			if fails {
				return
			}
			// A failure reaches the other rank without the leader.
			w.Comms[1].Spread(fmt.Errorf("as a test wants: %w", errdefs.ErrRemote))
			<-w.Comms[2].FailedChan()
			shimtest.WantError(t, w.Comms[2].AsyncError(), errdefs.ErrRemote, "as a test wants")
		})
	}
}
