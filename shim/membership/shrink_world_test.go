package membership_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

func TestShrink(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "shm", "tcp"}, func(t *testing.T) {
		w := shimtest.NewWorld(t, 5)
		excluded := []int{3, 0} // rank 0, the parent's leader, too
		left := shimtest.WorldOf(t, []*shim.Comm{w.Comms[1], w.Comms[2], w.Comms[4]})
		f := left.Derive(membership.Origin{How: membership.ByShrink, Exclude: excluded})
		for i, c := range f.Children {
			if c.Rank != i || c.Ranks != 3 {
				t.Errorf("rank %d of %d, want %d of 3", c.Rank, c.Ranks, i)
			}
		}
		f.Must(shimtest.CheckSums)
		w.Must(shimtest.CheckSums) // the parent is as it was
		// Again from the same parent, and from a child.
		f = left.Derive(membership.Origin{How: membership.ByShrink, Exclude: excluded})
		f.Must(shimtest.CheckSums)
		small := shimtest.WorldOf(t, f.Children[:2])
		f = small.Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{2}})
		f.Must(shimtest.CheckSums)
		one := shimtest.WorldOf(t, w.Comms[2:3])
		f = one.Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{0, 1, 3, 4}})
		f.Must(shimtest.CheckSums)
	})
}

// TestShrinkDisagree: different lists are refused by name, and the same call can be made again.
func TestShrinkDisagree(t *testing.T) {
	w := shimtest.NewWorld(t, 4)
	left := shimtest.WorldOf(t, w.Comms[:3])
	_, errs := left.InitFrom(func(c *shim.Comm) membership.Origin {
		o := membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{3}}
		if c.Rank == 1 {
			o.Exclude = []int{2}
		}
		return o
	})
	shimtest.WantErrors(t, errs, errdefs.ErrInvalidUsage, "excludes rank 3", "excludes rank 2")
	f := left.Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{3}})
	f.Must(shimtest.CheckSums)
}

// TestShrinkElsewhere checks that ranks whose lists lead to different listeners are refused by name. Ranks that agree
// with one of them are refused too. Afterwards all can shrink together.
func TestShrinkElsewhere(t *testing.T) {
	for _, late := range []int{-1, 0, 1, 2, 3} { // ranks that come when the others are there
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			w := shimtest.NewWorld(t, 5)
			// 0, 1 and 3 meet at 0, and 2 goes to 1, all without 4.
			_, errs := (shimtest.WorldOf(t, w.Comms[:4])).InitFrom(func(c *shim.Comm) membership.Origin {
				o := membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{4}}
				if c.Rank == 2 {
					o.Exclude = []int{4, 0}
				}
				if c.Rank == late {
					time.Sleep(100 * time.Millisecond)
				}
				return o
			})
			shimtest.WantErrors(t, errs, errdefs.ErrInvalidUsage, "rank 1", "excludes rank 4", "rank 2", "excludes ranks 0, 4")
			f := shimtest.WorldOf(t, w.Comms[1:4]).Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{4, 0}})
			f.Must(shimtest.CheckSums)
		})
	}
}

// TestShrinkElsewhereLater: so is a rank that comes to the others' rendezvous when those who differ have gone.
func TestShrinkElsewhereLater(t *testing.T) {
	t.Parallel()
	w := shimtest.NewWorld(t, 4)
	gone := make(chan struct{}, 3)
	shimtest.WantErrors(t, shimtest.Concurrently(t, 3, func(r int) error {
		o := membership.Origin{Parent: w.Comms[r], How: membership.ByShrink, Exclude: []int{3}}
		if r == 2 {
			o.Exclude = []int{3, 0}
		}
		if r == 0 {
			<-gone
			<-gone
		}
		_, err := shimtest.InitFrom(o)
		gone <- struct{}{}
		return err
	}), errdefs.ErrInvalidUsage, "rank 1", "excludes rank 3", "rank 2", "excludes ranks 0, 3")
}

// TestShrinksInTurn: several shrinks of one communicator at a time, and one of them given up.
func TestShrinksInTurn(t *testing.T) {
	w := shimtest.NewWorld(t, 3)
	var args []shim.InitArgs
	for _, c := range w.Comms[:2] {
		for range 3 {
			args = append(args, shim.InitArgs{From: &membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{2}}})
		}
	}
	comms, err := shim.Init(args)
	require.NoError(t, err)
	for i := range 3 {
		f := shimtest.WorldOf(t, []*shim.Comm{comms[i], comms[3+i]})
		t.Cleanup(f.Destroy)
		f.Must(shimtest.CheckSums)
	}
	// The first waits for rank 1, the second for the first: it ends when it is told to.
	both := []shim.InitArgs{args[0], args[0]}
	for i := range both {
		both[i].From, both[i].NonBlocking = &membership.Origin{Parent: w.Comms[0], How: membership.ByShrink,
			Exclude: []int{2}}, true
	}
	comms, err = shim.Init(both)
	shimtest.WantError(t, err, errdefs.ErrInProgress)
	require.NoError(t, comms[1].Abort())
	<-comms[1].Released()
	require.NoError(t, comms[0].Abort())
	<-comms[0].Released()
}

// TestShrinkAbort: calls that wait for a rank which is gone end, and those left go on together.
func TestShrinkAbort(t *testing.T) {
	for _, lost := range []int{0, 2} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			w := shimtest.NewWorld(t, 4)
			left := shimtest.WorldOf(t, slices.Delete(slices.Clone(w.Comms), lost, lost+1))
			errs := shimtest.Concurrently(t, 4, func(i int) error {
				if i == lost {
					time.Sleep(20 * time.Millisecond)
					return w.Comms[i].Abort()
				}
				return shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[i], make([]float32, 100))})
			})
			for i, err := range errs {
				if i != lost {
					shimtest.WantError(t, err, errdefs.ErrAborted)
				}
			}
			_, errs = left.InitFrom(func(c *shim.Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{lost}}
			})
			for _, err := range errs {
				shimtest.WantError(t, err, errdefs.ErrAborted) // without NCCL_SHRINK_ABORT
			}
			f := left.Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{lost}, Abort: true})
			f.Must(shimtest.CheckSums)
		})
	}
	t.Run("running", func(t *testing.T) {
		// The parent is well, and a call on it waits for a rank that left for the shrink.
		w := shimtest.NewWorld(t, 3)
		group := make(chan error, 1)
		go func() { group <- shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[0], make([]float32, 100))}) }()
		left := shimtest.WorldOf(t, w.Comms[:2])
		f := left.Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{2}, Abort: true})
		f.Must(shimtest.CheckSums)
		shimtest.WantError(t, <-group, errdefs.ErrRevoked)
		shimtest.WantError(t, shimtest.CheckSums(w.Comms[2]), errdefs.ErrRevoked, "NCCL_SHRINK_ABORT")
	})
}
