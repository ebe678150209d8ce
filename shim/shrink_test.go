package shim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
)

func TestShrink(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TRANSPORT", transport)
			w := newWorld(t, 5)
			excluded := []int{3, 0} // rank 0, the parent's leader, too
			left := worldOf(t, []*Comm{w.comms[1], w.comms[2], w.comms[4]})
			f, errs := left.bears(func(c *Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: excluded}
			})
			none(t, errs)
			for i, c := range f.children {
				if c.Rank != i || c.Ranks != 3 {
					t.Errorf("rank %d of %d, want %d of 3", c.Rank, c.Ranks, i)
				}
			}
			f.must(sums)
			w.must(sums) // the parent is as it was
			// Again from the same parent, and from a child.
			f, errs = left.bears(func(c *Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: excluded}
			})
			none(t, errs)
			f.must(sums)
			small := worldOf(t, f.children[:2])
			f, errs = small.bears(func(c *Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{2}}
			})
			none(t, errs)
			f.must(sums)
			one := worldOf(t, w.comms[2:3])
			f, errs = one.bears(func(c *Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{0, 1, 3, 4}}
			})
			none(t, errs)
			f.must(sums)
		})
	}
}

// TestShrinkDisagree: different lists are refused by name, and the same call can be made again.
func TestShrinkDisagree(t *testing.T) {
	w := newWorld(t, 4)
	left := worldOf(t, w.comms[:3])
	_, errs := left.bears(func(c *Comm) membership.Origin {
		o := membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{3}}
		if c.Rank == 1 {
			o.Exclude = []int{2}
		}
		return o
	})
	for _, err := range errs {
		wantError(t, err, errdefs.ErrInvalidUsage, "excludes rank 3", "excludes rank 2")
	}
	f, errs := left.bears(func(c *Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{3}}
	})
	none(t, errs)
	f.must(sums)
}

// TestShrinkElsewhere: ranks whose lists send them to different doors are refused by name too, those
// that agree with one of them as well, and can shrink together afterwards.
func TestShrinkElsewhere(t *testing.T) {
	for _, late := range []int{-1, 0, 1, 2, 3} { // who comes when the others are there
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			w := newWorld(t, 5)
			// 0, 1 and 3 meet at 0, and 2 goes to 1, all without 4.
			_, errs := (worldOf(t, w.comms[:4])).bears(func(c *Comm) membership.Origin {
				o := membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{4}}
				if c.Rank == 2 {
					o.Exclude = []int{4, 0}
				}
				if c.Rank == late {
					time.Sleep(100 * time.Millisecond)
				}
				return o
			})
			for _, err := range errs {
				wantError(t, err, errdefs.ErrInvalidUsage, "rank 1", "excludes rank 4", "rank 2", "excludes ranks 0, 4")
			}
			f, errs := (worldOf(t, w.comms[1:4])).bears(func(c *Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{4, 0}}
			})
			none(t, errs)
			f.must(sums)
		})
	}
}

// TestShrinkElsewhereLater: so is a rank that comes to the others' door when those who differ have gone.
func TestShrinkElsewhereLater(t *testing.T) {
	w := newWorld(t, 4)
	gone := make(chan struct{}, 3)
	for _, err := range concurrently(t, 3, func(r int) error {
		o := membership.Origin{Parent: w.comms[r], How: membership.ByShrink, Exclude: []int{3}}
		if r == 2 {
			o.Exclude = []int{3, 0}
		}
		if r == 0 {
			<-gone
			<-gone
		}
		_, err := bear(o)
		gone <- struct{}{}
		return err
	}) {
		wantError(t, err, errdefs.ErrInvalidUsage, "rank 1", "excludes rank 3", "rank 2", "excludes ranks 0, 3")
	}
}

// TestShrinksInTurn: several shrinks of one communicator at a time, and one of them given up.
func TestShrinksInTurn(t *testing.T) {
	w := newWorld(t, 3)
	var args []InitArgs
	for _, c := range w.comms[:2] {
		for range 3 {
			args = append(args, InitArgs{From: &membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{2}}})
		}
	}
	comms, err := Init(args)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f := worldOf(t, []*Comm{comms[i], comms[3+i]})
		t.Cleanup(f.destroy)
		f.must(sums)
	}
	// The first waits for rank 1, the second for the first: it ends when it is told to.
	both := []InitArgs{args[0], args[0]}
	for i := range both {
		both[i].From, both[i].NonBlocking = &membership.Origin{Parent: w.comms[0], How: membership.ByShrink, Exclude: []int{2}}, true
	}
	comms, err = Init(both)
	wantError(t, err, errdefs.ErrInProgress)
	if err := comms[1].Abort(); err != nil {
		t.Fatal(err)
	}
	<-comms[1].Released()
	if err := comms[0].Abort(); err != nil {
		t.Fatal(err)
	}
	<-comms[0].Released()
}

// TestShrinkAbort: calls that wait for a rank which is gone end, and those left go on together.
func TestShrinkAbort(t *testing.T) {
	for _, lost := range []int{0, 2} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			w := newWorld(t, 4)
			left := worldOf(t, slices.Delete(slices.Clone(w.comms), lost, lost+1))
			errs := concurrently(t, 4, func(i int) error {
				if i == lost {
					time.Sleep(20 * time.Millisecond)
					return w.comms[i].Abort()
				}
				return Run([]calls.Call{allReduce(w.comms[i], make([]float32, 100))})
			})
			for i, err := range errs {
				if i != lost {
					wantError(t, err, errdefs.ErrAborted)
				}
			}
			_, errs = left.bears(func(c *Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{lost}}
			})
			for _, err := range errs {
				wantError(t, err, errdefs.ErrAborted) // without NCCL_SHRINK_ABORT
			}
			f, errs := left.bears(func(c *Comm) membership.Origin {
				return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{lost}, Abort: true}
			})
			none(t, errs)
			f.must(sums)
		})
	}
	t.Run("running", func(t *testing.T) {
		// The parent is well, and a call on it waits for a rank that left for the shrink.
		w := newWorld(t, 3)
		group := make(chan error, 1)
		go func() { group <- Run([]calls.Call{allReduce(w.comms[0], make([]float32, 100))}) }()
		left := worldOf(t, w.comms[:2])
		f, errs := left.bears(func(c *Comm) membership.Origin {
			return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{2}, Abort: true}
		})
		none(t, errs)
		f.must(sums)
		wantError(t, <-group, errdefs.ErrRevoked)
		wantError(t, sums(w.comms[2]), errdefs.ErrRevoked, "NCCL_SHRINK_ABORT")
	})
}
