package shim

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/session"
)

// sums checks a communicator by an AllReduce: everyone gets the sum of all ranks.
func sums(c *Comm) error {
	mem := make([]float32, 1000)
	for i := range mem {
		mem[i] = float32(c.Rank + i)
	}
	if err := Run([]calls.Call{allReduce(c, mem)}); err != nil {
		return err
	}
	n := c.Ranks
	for i := range mem {
		if want := float32(n*(n-1)/2 + n*i); mem[i] != want {
			return fmt.Errorf("rank %d: element %d is %v, want %v", c.Rank, i, mem[i], want)
		}
	}
	return nil
}

// bear makes one communicator of a parent, as one rank of a process of its own would.
func bear(o membership.Origin) (*Comm, error) {
	comms, err := Init([]InitArgs{{From: &o}})
	if err != nil {
		return nil, err
	}
	return comms[0], nil
}

// family is the children of a world, by rank of the parent.
type family struct {
	*world
	children []*Comm
}

// bears makes children and has them destroyed when the test ends.
func (w *world) bears(origin func(c *Comm) membership.Origin) (*family, []error) {
	f := &family{w, make([]*Comm, len(w.comms))}
	errs := w.each(func(c *Comm) (err error) {
		f.children[slices.Index(w.comms, c)], err = bear(origin(c))
		return err
	})
	w.t.Cleanup(func() {
		(worldOf(w.t, slices.DeleteFunc(f.children, func(c *Comm) bool { return c == nil }))).destroy()
	})
	return f, errs
}

// must runs f on every child, concurrently.
func (f *family) must(run func(c *Comm) error) {
	f.t.Helper()
	for r, err := range concurrently(f.t, len(f.children), func(i int) error {
		if f.children[i] == nil {
			return nil
		}
		return run(f.children[i])
	}) {
		if err != nil {
			f.t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func none(t testing.TB, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// TestSplit: ranks by colour, in the order of keys and then of ranks; nothing without a colour.
func TestSplit(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TRANSPORT", transport)
			w := newWorld(t, 6)
			color := []int{0, 7, 0, membership.NoColor, 7, 0}
			key := []int{5, 0, -1, 0, 0, 5}
			want := [][2]int{{1, 3}, {0, 2}, {0, 3}, {-1, -1}, {1, 2}, {2, 3}} // rank and ranks
			f, errs := w.bears(func(c *Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.BySplit, Color: color[c.Rank], Key: key[c.Rank]}
			})
			none(t, errs)
			for r, c := range f.children {
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
			f.must(sums)
			w.must(sums)
			// Parent and children are independent: each outlives the other.
			w.destroy()
			f.must(sums)
		})
	}
}

// TestSplitInOneGroup: one thread drives all ranks, and makes several children at once.
func TestSplitInOneGroup(t *testing.T) {
	w := newWorld(t, 4)
	var args []InitArgs
	for _, by := range []int{2, 1} {
		for r, c := range w.comms {
			args = append(args, InitArgs{From: &membership.Origin{Parent: c, How: membership.BySplit, Color: r / by}})
		}
	}
	comms, err := Init(args)
	if err != nil {
		t.Fatal(err)
	}
	f := &family{w, comms}
	f.must(sums)
	for i, c := range comms {
		if want := []int{2, 1}[i/4]; c.Ranks != want {
			t.Errorf("child %d has %d ranks, want %d", i, c.Ranks, want)
		}
	}
	(worldOf(t, comms)).destroy()
}

func TestKinArguments(t *testing.T) {
	w := newWorld(t, 3)
	c := w.comms[1]
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
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
		_, err := bear(o)
		wantError(t, err, errdefs.ErrInvalidArgument, says)
	}
	w.must(sums)
}

// TestKinDisagree: what ranks ask for must belong together.
func TestKinDisagree(t *testing.T) {
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	ids := make([]UniqueID, 2)
	for i := range ids {
		var err error
		if ids[i], err = NewUniqueID(); err != nil {
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
		"no id": {func(int) membership.Origin { return membership.Origin{How: membership.ByGrow, Ranks: 4} }, errdefs.ErrInvalidUsage, []string{"no rank has passed the id"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			_, errs := w.bears(func(c *Comm) membership.Origin {
				o := k.origin(c.Rank)
				o.Parent = c
				return o
			})
			for _, err := range errs {
				wantError(t, err, k.is, k.says...)
			}
			w.must(sums) // a child that was not made leaves its parent alone
		})
	}
}

// TestSplitWithoutSome: ranks that do not split, or cannot any more, are named.
func TestSplitWithoutSome(t *testing.T) {
	t.Run("never calls", func(t *testing.T) {
		w := newWorld(t, 3)
		w.limit(2 * time.Second)
		for _, err := range concurrently(t, 2, func(i int) error {
			_, err := bear(membership.Origin{Parent: w.comms[i], How: membership.BySplit})
			return err
		}) {
			wantError(t, err, errdefs.ErrTimeout, "rank 2 never called it")
		}
	})
	t.Run("has left", func(t *testing.T) {
		w := newWorld(t, 3)
		if err := w.comms[2].Destroy(); err != nil {
			t.Fatal(err)
		}
		for _, err := range concurrently(t, 2, func(i int) error {
			_, err := bear(membership.Origin{Parent: w.comms[i], How: membership.BySplit})
			return err
		}) {
			wantError(t, err, errdefs.ErrRemote, "rank 2 of the parent left it")
		}
	})
	t.Run("leader has left", func(t *testing.T) {
		w := newWorld(t, 3)
		if err := w.comms[0].Abort(); err != nil {
			t.Fatal(err)
		}
		for _, err := range concurrently(t, 2, func(i int) error {
			_, err := bear(membership.Origin{Parent: w.comms[i+1], How: membership.BySplit})
			return err
		}) {
			if err == nil {
				t.Error("split without the leader")
			}
		}
	})
	t.Run("abort of the parent", func(t *testing.T) {
		w := newWorld(t, 3)
		errs := concurrently(t, 3, func(i int) error {
			if i == 2 {
				time.Sleep(20 * time.Millisecond)
				return w.comms[2].Abort()
			}
			_, err := bear(membership.Origin{Parent: w.comms[i], How: membership.BySplit})
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
				w := newWorld(t, 2)
				id, err := membership.GrowID(w.comms[1])
				if err != nil {
					t.Fatal(err)
				}
				if _, err := membership.GrowID(w.comms[1]); !errors.Is(err, errdefs.ErrInvalidUsage) {
					t.Errorf("a second id: %v", err)
				}
				var args []InitArgs
				for r, c := range w.comms {
					o := &membership.Origin{Parent: c, How: membership.ByGrow, Ranks: 4}
					if r == 1 || everyone {
						o.ID = &id
					}
					args = append(args, InitArgs{From: o})
				}
				args = append(args, InitArgs{ID: id, Ranks: 4, Rank: 2}, InitArgs{ID: id, Ranks: 4, Rank: 3})
				comms, err := Init(args)
				if err != nil {
					t.Fatal(err)
				}
				g := worldOf(t, comms)
				t.Cleanup(g.destroy)
				for r, c := range comms {
					if c.Rank != r || c.Ranks != 4 {
						t.Errorf("rank %d of %d, want %d of 4", c.Rank, c.Ranks, r)
					}
				}
				g.must(sums)
				w.must(sums)
				if _, err := membership.GrowID(w.comms[1]); err != nil {
					t.Errorf("an id after the growth: %v", err)
				}
			})
		}
	}
}

// TestSpentID: an id is good for one communicator; the next attempt is told soon, not at the
// end of the timeout.
func TestSpentID(t *testing.T) {
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	args := []InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}}
	comms, err := Init(args)
	if err != nil {
		t.Fatal(err)
	}
	(worldOf(t, comms)).destroy()
	_, err = Init(args)
	wantError(t, err, errdefs.ErrRemote, "nobody listens there any more")
}

// TestRevoke: it ends calls everywhere; afterwards the communicator can be split, shrunk and
// destroyed, and nothing else.
func TestRevoke(t *testing.T) {
	w := newWorld(t, 3)
	waiting := make(chan error, 2)
	for _, c := range w.comms[:2] {
		go func() { waiting <- Run([]calls.Call{allReduce(c, make([]float32, 100))}) }()
	}
	time.Sleep(20 * time.Millisecond)
	if err := w.comms[1].Revoke(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantError(t, <-waiting, errdefs.ErrRevoked, "rank 1 revoked")
	}
	for r, c := range w.comms {
		settled(func() bool { return c.AsyncError() != nil })
		wantError(t, sums(c), errdefs.ErrRevoked)
		if r != 1 {
			wantError(t, c.State(), errdefs.ErrRevoked)
		} else if err := c.State(); err != nil {
			t.Errorf("rank 1, which revoked: %v", err)
		}
	}
	wantError(t, w.comms[1].Finalize(), errdefs.ErrInvalidUsage, "revoked")
	_, err := membership.GrowID(w.comms[1])
	wantError(t, err, errdefs.ErrRevoked)
	f, errs := w.bears(func(c *Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.BySplit, Key: -c.Rank}
	})
	none(t, errs)
	f.must(sums)
	left := worldOf(t, w.comms[:2])
	f, errs = left.bears(func(c *Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{2}}
	})
	none(t, errs)
	f.must(sums)
	for _, c := range w.comms {
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
		if err := c.Revoke(); !errors.Is(err, errdefs.ErrDestroyed) {
			t.Errorf("revoke after destroy: %v", err)
		}
	}
}

func TestSuspend(t *testing.T) {
	w := newWorld(t, 2)
	w.must(sums)
	wantError(t, w.comms[0].Resume(), errdefs.ErrInvalidUsage, "not suspended")
	w.must((*Comm).Suspend)
	wantError(t, sums(w.comms[0]), errdefs.ErrInvalidUsage, "suspended")
	wantError(t, w.comms[0].Suspend(), errdefs.ErrInvalidUsage, "suspended")
	if session.Of(w.comms[0]).Bytes() != 0 {
		t.Error("memory is kept")
	}
	w.must((*Comm).Resume)
	w.must(sums)
	w.must((*Comm).Suspend)
	w.must((*Comm).Destroy)
}
