package shares_test

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/session"
	"lightpath/shim/shares"
	"lightpath/shim/shimtest"
)

// newSharing makes a communicator over TCP planes of this host whose calls, by their size, go by shares,
// and are not measured.
func newSharing(t *testing.T, ranks, planes int) *shimtest.World {
	t.Helper()
	t.Setenv("LIGHTPATH_TRANSPORT", "tcp")
	t.Setenv("LIGHTPATH_PLANES", fmt.Sprint(planes))
	t.Setenv("LIGHTPATH_PLANE_SHARES", "measured")
	t.Setenv("LIGHTPATH_ALGORITHM", "allgather:ring")
	return shimtest.NewWorld(t, ranks)
}

// sharedCount is how many elements of a block two planes divide.
const sharedCount = 140 << 10 / 4

// gatherOne makes one AllGather, in a group of so many, and checks what came.
func gatherOne(c *shim.Comm, group int) error {
	n := c.Ranks
	some := make([]calls.Call, group)
	results := make([][]float32, group)
	for k := range some {
		in := make([]float32, sharedCount)
		for i := range in {
			in[i] = float32(c.Rank*1000 + i%97)
		}
		results[k] = make([]float32, n*sharedCount)
		some[k] = calls.Call{
			Comm: c, Kind: calls.AllGather, Type: datatype.Float32, Count: sharedCount,
			Send: unsafe.Pointer(unsafe.SliceData(in)), Recv: unsafe.Pointer(unsafe.SliceData(results[k])),
		}
	}
	if err := shim.Run(some); err != nil {
		return err
	}
	for k, out := range results {
		for i, v := range out {
			if want := float32(i/sharedCount*1000 + i%sharedCount%97); v != want {
				return fmt.Errorf("call %d, element %d: %v, want %v", k, i, v, want)
			}
		}
	}
	return nil
}

// see has every rank believe that planes have had those paces, and one say that shares do not fit.
func see(w *shimtest.World, from int, pace func(rank int) []uint64) {
	for _, c := range w.Comms {
		shares.Of(c).Mu.Lock()
		copy(shares.Of(c).Seen, pace(c.Rank))
		shares.Of(c).Mu.Unlock()
	}
	_ = w.Comms[from].Star.ToLeader(&control.Message{Kind: control.MsgShares, Arg: shares.SharesLook})
}

// inForce are the shares that rank 0 goes by, and whether all do. No call is in progress.
func inForce(w *shimtest.World) (units []int, all bool) {
	units, all = shares.Of(w.Comms[0]).Units, true
	for _, c := range w.Comms {
		all = all && slices.Equal(shares.Of(c).Units, units) && shares.Of(c).Version == shares.Of(w.Comms[0]).Version
	}
	return units, all
}

// TestSharesAgreed checks that measured speeds become the shares of all ranks from one operation on, whichever rank is
// ahead, with groups of any size and right results. When the planes are equally fast again, shares become even.
func TestSharesAgreed(t *testing.T) {
	for _, k := range []struct{ ranks, planes int }{{2, 2}, {3, 2}, {4, 2}} {
		t.Run(fmt.Sprintf("%d ranks", k.ranks), func(t *testing.T) {
			w := newSharing(t, k.ranks, k.planes)
			calls := 0
			// until has ranks see those paces, and make calls, until shares are as they should be. The leader does not
			// look every time that it is asked to.
			until := func(what string, pace func(rank int) []uint64, ok func(units []int) bool) {
				t.Helper()
				if !shimtest.Eventually(func() bool {
					see(w, k.ranks-1, pace)
					// Groups need not be the same on all ranks.
					w.Must(func(c *shim.Comm) error {
						for left := 6; left > 0; {
							n := min(1+(calls+c.Rank)%3, left)
							if err := gatherOne(c, n); err != nil {
								return err
							}
							left -= n
						}
						return nil
					})
					calls++
					units, all := inForce(w)
					if !all {
						t.Fatalf("%s: ranks differ: %v", what, units)
					}
					return ok(units)
				}) {
					units, _ := inForce(w)
					t.Fatalf("%s: shares are %v after %d rounds of calls", what, units, calls)
				}
			}
			// The last rank is badly served by plane 1. The others see no such thing, but wait for it.
			until("slow for one", func(rank int) []uint64 {
				if rank == k.ranks-1 {
					return []uint64{900, 100}
				}
				return []uint64{500, 500}
			}, func(u []int) bool { return u != nil && u[1] < u[0]/4 })
			until("recovered", func(int) []uint64 { return []uint64{500, 500} }, func(u []int) bool {
				return u == nil || u[1] > shares.ShareTotal/4
			})
		})
	}
}

// TestSharesRootAhead: the root of broadcasts waits for no rank, so it has already begun the operation from which the
// proposed shares would hold. The leader then proposes a later one.
func TestSharesRootAhead(t *testing.T) {
	w := newSharing(t, 2, 2)
	broadcast := func(c *shim.Comm, buf []float32) error {
		p := unsafe.Pointer(unsafe.SliceData(buf))
		return shim.Run([]calls.Call{{Comm: c, Kind: calls.Broadcast, Type: datatype.Float32, Count: uint64(len(buf)),
			Send: p, Recv: p}})
	}
	const ahead = 8 // whose bytes the connections hold
	w.Must(func(c *shim.Comm) error {
		buf := make([]float32, 1)
		if c.Rank == 0 {
			for range ahead {
				if err := broadcast(c, buf); err != nil {
					return err
				}
			}
			see(w, 1, func(int) []uint64 { return []uint64{100, 900} })
			if !shimtest.Eventually(func() bool {
				shares.Of(c).Mu.Lock()
				defer shares.Of(c).Mu.Unlock()
				return shares.Of(c).Next != nil && shares.Of(c).Next.From > ahead
			}) {
				return fmt.Errorf("nothing has been agreed for later than operation %d", ahead)
			}
			return nil
		}
		if !shimtest.Eventually(func() bool {
			shares.Of(c).Mu.Lock()
			defer shares.Of(c).Mu.Unlock()
			return shares.Of(c).Next != nil
		}) {
			return fmt.Errorf("nothing has been proposed")
		}
		for range ahead {
			if err := broadcast(c, buf); err != nil {
				return err
			}
		}
		return nil
	})
	for range 8 {
		w.Must(func(c *shim.Comm) error { return gatherOne(c, 1) })
	}
	if units, all := inForce(w); !all || units == nil {
		t.Errorf("shares %v, all alike: %v", units, all)
	}
}

// TestSharesRefused checks that all ranks keep even shares if one is told to, and that no rank waits for it.
func TestSharesRefused(t *testing.T) {
	w := newSharing(t, 2, 2)
	w.Comms[1].Turn.Lock()
	shares.SharesSlot.Set(w.Comms[1], nil) // as Attach leaves it
	w.Comms[1].Turn.Unlock()
	p := shares.Of(w.Comms[0])
	p.Mu.Lock()
	copy(p.Seen, []uint64{900, 100})
	p.Mu.Unlock()
	_ = w.Comms[0].Star.ToLeader(&control.Message{Kind: control.MsgShares, Arg: shares.SharesLook})
	for range 20 {
		w.Must(func(c *shim.Comm) error { return gatherOne(c, 2) })
	}
	if p.Units != nil {
		t.Errorf("shares %v", p.Units)
	}
}

// TestSharesNeverConcluded checks that a rank that has reached the proposed operation gives up if the leader does not
// decide.
func TestSharesNeverConcluded(t *testing.T) {
	w := newSharing(t, 2, 2)
	w.SetTimeout(1e9)
	for _, c := range w.Comms {
		shares.Of(c).Answer(&control.Message{Seq: 99, Arg: shares.SharesPropose,
			Body: shares.AppendWords(nil, session.Of(c).Seq+1, 512, 512)}, 2)
	}
	for r, err := range w.Each(func(c *shim.Comm) error { return gatherOne(c, 1) }) {
		if err == nil {
			t.Errorf("rank %d goes on", r)
			continue
		}
		shimtest.WantError(t, err, errdefs.ErrTimeout, "shares of planes")
	}
}
