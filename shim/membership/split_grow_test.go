package membership_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// TestSplit: ranks by colour, in the order of keys and then of ranks; nothing without a colour.
func TestSplit(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "shm", "tcp"}, func(t *testing.T) {
		w := shimtest.NewWorld(t, 6)
		color := []int{0, 7, 0, membership.NoColor, 7, 0}
		key := []int{5, 0, -1, 0, 0, 5}
		want := [][2]int{{1, 3}, {0, 2}, {0, 3}, {-1, -1}, {1, 2}, {2, 3}} // rank and ranks
		f, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
			return membership.Origin{Parent: c, How: membership.BySplit, Color: color[c.Rank], Key: key[c.Rank]}
		})
		shimtest.NoErrors(t, errs)
		for r, c := range f.Children {
			if c == nil {
				if want[r][0] != -1 {
					t.Errorf("rank %d got nothing", r)
				}
				continue
			}
			if got := [2]int{c.Rank, c.Ranks}; got != want[r] || c.Device != r {
				t.Errorf("rank %d is %v, want %v; device %d", r, got, want[r], c.Device)
			}
		}
		f.Must(shimtest.CheckSums)
		w.Must(shimtest.CheckSums)
		// Parent and children are independent: each outlives the other.
		w.Destroy()
		f.Must(shimtest.CheckSums)
	})
}

// TestSplitInOneGroup: one thread drives all ranks, and makes several children at once.
func TestSplitInOneGroup(t *testing.T) {
	w := shimtest.NewWorld(t, 4)
	var args []shim.InitArgs
	for _, by := range []int{2, 1} {
		for r, c := range w.Comms {
			args = append(args, shim.InitArgs{From: &membership.Origin{Parent: c, How: membership.BySplit, Color: r / by}})
		}
	}
	comms, err := shim.Init(args)
	require.NoError(t, err)
	w = shimtest.WorldOf(t, comms)
	w.Must(shimtest.CheckSums)
	for i, c := range comms {
		if want := []int{2, 1}[i/4]; c.Ranks != want {
			t.Errorf("child %d has %d ranks, want %d", i, c.Ranks, want)
		}
	}
	w.Destroy()
}

func TestKinArguments(t *testing.T) {
	w := shimtest.NewWorld(t, 3)
	c := w.Comms[1]
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	damaged := id
	damaged[99]++
	for says, o := range map[string]membership.Origin{
		"color -2":                  {How: membership.BySplit, Color: -2},
		"excludeRanksCount 0":       {How: membership.ByShrink},
		"excludeRanksCount 3":       {How: membership.ByShrink, Exclude: []int{0, 1, 2}},
		"excludeRanksList[0] is 3":  {How: membership.ByShrink, Exclude: []int{3}},
		"excludeRanksList[0] is -1": {How: membership.ByShrink, Exclude: []int{-1}},
		"excludeRanksList[0] is 1":  {How: membership.ByShrink, Exclude: []int{1}},
		"excludeRanksList[1] is 2":  {How: membership.ByShrink, Exclude: []int{2, 2}},
		"nRanks 3":                  {How: membership.ByGrow, Ranks: 3},
		"nRanks 100000":             {How: membership.ByGrow, Ranks: 100000},
		"commId":                    {How: membership.ByGrow, Ranks: 4, ID: &damaged},
	} {
		o.Parent = c
		_, err := shimtest.InitFrom(o)
		shimtest.WantError(t, err, errdefs.ErrInvalidArgument, says)
	}
	w.Must(shimtest.CheckSums)
}

// TestKinDisagree: what ranks ask for must belong together.
func TestKinDisagree(t *testing.T) {
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	ids := make([]shim.UniqueID, 2)
	for i := range ids {
		var err error
		if ids[i], err = shim.NewUniqueID(); err != nil {
			t.Fatal(err)
		}
	}
	for name, k := range map[string]struct {
		origin func(r int) membership.Origin
		is     error
		says   []string
	}{
		"calls": {func(r int) membership.Origin {
			if r == 1 {
				return membership.Origin{How: membership.ByGrow, Ranks: 4}
			}
			return membership.Origin{How: membership.BySplit}
		}, errdefs.ErrMismatch, []string{"ncclCommSplit", "ncclCommGrow", "rank 1"}},
		"sizes": {func(r int) membership.Origin {
			return membership.Origin{How: membership.ByGrow, Ranks: 4 + r/2, ID: &ids[0]}
		}, errdefs.ErrMismatch, []string{"rank 0 says nRanks 4, rank 2 says 5"}},
		"ids": {func(r int) membership.Origin {
			return membership.Origin{How: membership.ByGrow, Ranks: 4, ID: &ids[r%2]}
		}, errdefs.ErrMismatch, []string{"ranks 0 and 1 have different ids"}},
		"no id": {func(int) membership.Origin {
			return membership.Origin{How: membership.ByGrow, Ranks: 4}
		}, errdefs.ErrInvalidUsage, []string{"no rank has passed the id"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := shimtest.NewWorld(t, 3)
			_, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
				o := k.origin(c.Rank)
				o.Parent = c
				return o
			})
			shimtest.WantErrors(t, errs, k.is, k.says...)
			w.Must(shimtest.CheckSums) // a child that was not made leaves its parent alone
		})
	}
}

// TestSplitWithoutSome: ranks that do not split, or cannot any more, are named.
func TestSplitWithoutSome(t *testing.T) {
	t.Parallel()
	split := func(comms []*shim.Comm) []error {
		return shimtest.Concurrently(t, len(comms), func(i int) error {
			_, err := shimtest.InitFrom(membership.Origin{Parent: comms[i], How: membership.BySplit})
			return err
		})
	}
	t.Run("never calls", func(t *testing.T) {
		t.Parallel()
		w := shimtest.NewWorld(t, 3)
		w.SetTimeout(time.Second)
		shimtest.WantErrors(t, split(w.Comms[:2]), errdefs.ErrTimeout, "rank 2 never called it")
	})
	t.Run("has left", func(t *testing.T) {
		t.Parallel()
		w := shimtest.NewWorld(t, 3)
		require.NoError(t, w.Comms[2].Destroy())
		shimtest.WantErrors(t, split(w.Comms[:2]), errdefs.ErrRemote, "rank 2 of the parent left it")
	})
	t.Run("leader has left", func(t *testing.T) {
		t.Parallel()
		w := shimtest.NewWorld(t, 3)
		require.NoError(t, w.Comms[0].Abort())
		for _, err := range split(w.Comms[1:]) {
			if err == nil {
				t.Error("split without the leader")
			}
		}
	})
	t.Run("abort of the parent", func(t *testing.T) {
		t.Parallel()
		w := shimtest.NewWorld(t, 3)
		errs := shimtest.Concurrently(t, 3, func(i int) error {
			if i == 2 {
				time.Sleep(20 * time.Millisecond)
				return w.Comms[2].Abort()
			}
			_, err := shimtest.InitFrom(membership.Origin{Parent: w.Comms[i], How: membership.BySplit})
			return err
		})
		for _, err := range errs[:2] {
			if !errors.Is(err, errdefs.ErrAborted) && !errors.Is(err, errdefs.ErrRemote) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// TestGrow: old ranks keep their numbers, new ones join by the id.
func TestGrow(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		for _, everyone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", transport, everyone), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				w := shimtest.NewWorld(t, 2)
				id, err := membership.GrowID(w.Comms[1])
				require.NoError(t, err)
				if _, err := membership.GrowID(w.Comms[1]); !errors.Is(err, errdefs.ErrInvalidUsage) {
					t.Errorf("a second id: %v", err)
				}
				var args []shim.InitArgs
				for r, c := range w.Comms {
					o := &membership.Origin{Parent: c, How: membership.ByGrow, Ranks: 4}
					if r == 1 || everyone {
						o.ID = &id
					}
					args = append(args, shim.InitArgs{From: o})
				}
				args = append(args, shim.InitArgs{ID: id, Ranks: 4, Rank: 2}, shim.InitArgs{ID: id, Ranks: 4, Rank: 3})
				comms, err := shim.Init(args)
				require.NoError(t, err)
				g := shimtest.WorldOf(t, comms)
				t.Cleanup(g.Destroy)
				for r, c := range comms {
					if c.Rank != r || c.Ranks != 4 {
						t.Errorf("rank %d of %d, want %d of 4", c.Rank, c.Ranks, r)
					}
				}
				g.Must(shimtest.CheckSums)
				w.Must(shimtest.CheckSums)
				if _, err := membership.GrowID(w.Comms[1]); err != nil {
					t.Errorf("an id after the growth: %v", err)
				}
			})
		}
	}
}

// TestSpentID: an id is good for one communicator; the next attempt is told soon, not at the
// end of the timeout.
func TestSpentID(t *testing.T) {
	t.Parallel()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	args := []shim.InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}}
	comms, err := shim.Init(args)
	require.NoError(t, err)
	(shimtest.WorldOf(t, comms)).Destroy()
	_, err = shim.Init(args)
	shimtest.WantError(t, err, errdefs.ErrRemote, "no process listens there any more")
}

// TestRevoke: it ends calls everywhere; afterwards the communicator can be split, shrunk and
// destroyed, and nothing else.
func TestRevoke(t *testing.T) {
	w := shimtest.NewWorld(t, 3)
	waiting := make(chan error, 2)
	for _, c := range w.Comms[:2] {
		go func() { waiting <- shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 100))}) }()
	}
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, w.Comms[1].Revoke())
	for range 2 {
		shimtest.WantError(t, <-waiting, errdefs.ErrRevoked, "rank 1 revoked")
	}
	for r, c := range w.Comms {
		shimtest.Eventually(func() bool { return c.AsyncError() != nil })
		shimtest.WantError(t, shimtest.CheckSums(c), errdefs.ErrRevoked)
		if r != 1 {
			shimtest.WantError(t, c.State(), errdefs.ErrRevoked)
		} else if err := c.State(); err != nil {
			t.Errorf("rank 1, which revoked: %v", err)
		}
	}
	shimtest.WantError(t, w.Comms[1].Finalize(), errdefs.ErrInvalidUsage, "revoked")
	_, err := membership.GrowID(w.Comms[1])
	shimtest.WantError(t, err, errdefs.ErrRevoked)
	f, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.BySplit, Key: -c.Rank}
	})
	shimtest.NoErrors(t, errs)
	f.Must(shimtest.CheckSums)
	left := shimtest.WorldOf(t, w.Comms[:2])
	f = left.Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{2}})
	f.Must(shimtest.CheckSums)
	for _, c := range w.Comms {
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
		if err := c.Revoke(); !errors.Is(err, errdefs.ErrDestroyed) {
			t.Errorf("revoke after destroy: %v", err)
		}
	}
}

func TestSuspend(t *testing.T) {
	w := shimtest.NewWorld(t, 2)
	w.Must(shimtest.CheckSums)
	shimtest.WantError(t, w.Comms[0].Resume(), errdefs.ErrInvalidUsage, "not suspended")
	w.Must((*shim.Comm).Suspend)
	shimtest.WantError(t, shimtest.CheckSums(w.Comms[0]), errdefs.ErrInvalidUsage, "suspended")
	shimtest.WantError(t, w.Comms[0].Suspend(), errdefs.ErrInvalidUsage, "suspended")
	shimtest.WantError(t, w.Comms[0].Finalize(), errdefs.ErrInvalidUsage, "suspended")
	if session.Of(w.Comms[0]).Bytes() != 0 {
		t.Error("memory is kept")
	}
	w.Must((*shim.Comm).Resume)
	w.Must(shimtest.CheckSums)
	w.Must((*shim.Comm).Suspend)
	w.Must((*shim.Comm).Destroy)
}

// TestRefusedGrow: if the ranks of a parent do not grow it, new ranks do not wait for them, and the next id works.
func TestRefusedGrow(t *testing.T) {
	w := shimtest.NewWorld(t, 2)
	id, err := membership.GrowID(w.Comms[1])
	require.NoError(t, err)
	early, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 3, Rank: 2, NonBlocking: true}})
	begun(t, err)
	_, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.ByGrow, Ranks: 3 + c.Rank, ID: &id}
	})
	shimtest.WantErrors(t, errs, errdefs.ErrMismatch, "rank 0 says nRanks 3, rank 1 says 4")
	shimtest.WantError(t, finished(t, early[0]), errdefs.ErrInvalidUsage, "do not grow it", "rank 1 says 4")
	_ = early[0].Destroy()
	_, err = membership.GrowID(w.Comms[1])
	require.NoError(t, err)
}
