package membership_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/result"
	"lightpath/shim/shimtest"
)

// finished polls a communicator as a program would, until nothing is in progress.
func finished(t testing.TB, c *shim.Comm) error {
	t.Helper()
	for range 6000 {
		if err := c.State(); !errors.Is(err, errdefs.ErrInProgress) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	panic(fmt.Sprintf("%s: in progress for ever", t.Name()))
}

// begun checks that a call goes on in the background.
func begun(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, errdefs.ErrInProgress) || result.Of(err) != result.InProgress {
		t.Fatalf("got %v, want in progress", err)
	}
}

// newQuickWorld is [shimtest.NewWorld] with communicators that do not block.
func newQuickWorld(t testing.TB, n int) *shimtest.World {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	w := shimtest.WorldOf(t, make([]*shim.Comm, n))
	for r := range n {
		comms, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: n, Rank: r, NonBlocking: true}})
		begun(t, err)
		w.Comms[r] = comms[0]
	}
	t.Cleanup(w.Destroy)
	for r, c := range w.Comms {
		if err := finished(t, c); err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return w
}

// TestNonBlocking: one thread drives every rank, call by call.
func TestNonBlocking(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "shm", "tcp"}, func(t *testing.T) {
		w := newQuickWorld(t, 3)
		mem := [3][]float32{}
		for r, c := range w.Comms {
			mem[r] = []float32{float32(r), 1}
			begun(t, shim.Run([]calls.Call{shimtest.AllReduce(c, mem[r])}))
			if r == 0 {
				// No other rank has called yet, so it cannot have ended.
				begun(t, c.State())
				for name, err := range map[string]error{
					"run":   shim.Run([]calls.Call{shimtest.AllReduce(c, mem[r])}),
					"check": calls.Check(new(shimtest.AllReduce(c, mem[r]))), "finalize": c.Finalize(),
					"destroy": c.Destroy(), "suspend": c.Suspend(),
					"split": second(shimtest.InitFrom(membership.Origin{Parent: c, How: membership.BySplit})),
				} {
					if result.Of(err) != result.InvalidArgument {
						t.Errorf("%s of a communicator in use: %v", name, err)
					}
				}
			}
		}
		for r, c := range w.Comms {
			require.NoError(t, finished(t, c))
			if mem[r][0] != 3 || mem[r][1] != 3 {
				t.Errorf("rank %d: %v", r, mem[r])
			}
		}
		var children []*shim.Comm
		for r, c := range w.Comms {
			color := 0
			if r == 1 {
				color = membership.NoColor
			}
			comms, err := shim.Init([]shim.InitArgs{{From: &membership.Origin{Parent: c, How: membership.BySplit, Color: color},
				NonBlocking: true}})
			begun(t, err)
			if (comms[0] == nil) != (r == 1) {
				t.Fatalf("rank %d: child %v", r, comms[0])
			}
			if comms[0] != nil {
				children = append(children, comms[0])
			}
		}
		for _, c := range slices.Concat(children, w.Comms) {
			require.NoError(t, finished(t, c))
		}
		for _, c := range children {
			begun(t, c.Finalize())
		}
		for _, c := range children {
			assert.NoError(t, errors.Join(finished(t, c), c.Destroy()))
		}
	})
}

func second(_ *shim.Comm, err error) error { return err }

// TestMixedGroup: communicators that block and that do not cannot share a group.
func TestMixedGroup(t *testing.T) {
	a, b := shimtest.NewWorld(t, 1), newQuickWorld(t, 1)
	mem := make([]float32, 2)
	err := shim.Run([]calls.Call{shimtest.AllReduce(a.Comms[0], mem[:1]), shimtest.AllReduce(b.Comms[0], mem[1:])})
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, "blocking and nonblocking")
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	_, err = shim.Init([]shim.InitArgs{{ID: id, Ranks: 2}, {ID: id, Ranks: 2, Rank: 1, NonBlocking: true}})
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, "blocking and nonblocking")
	for _, w := range []*shimtest.World{a, b} {
		err := shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[0], mem[:1])})
		if err != nil && !errors.Is(err, errdefs.ErrInProgress) || finished(t, w.Comms[0]) != nil {
			t.Error(err)
		}
	}
}

// TestNonBlockingFailure checks that a failure in the background becomes the communicator's state.
func TestNonBlockingFailure(t *testing.T) {
	t.Parallel()
	w := newQuickWorld(t, 2) // in time, whatever that takes
	cfg := shimtest.Settings(t, "LIGHTPATH_TIMEOUT", "1s")
	id, err := bootstrap.NewID(cfg)
	require.NoError(t, err)
	comms, err := shim.InitWith(cfg, []shim.InitArgs{{ID: id, Ranks: 2, NonBlocking: true}})
	begun(t, err)
	shimtest.WantError(t, finished(t, comms[0]), errdefs.ErrTimeout, "rank 1 never arrived")
	shimtest.WantError(t, shimtest.CheckSums(comms[0]), errdefs.ErrTimeout)
	assert.NoError(t, comms[0].Destroy())
	w.SetTimeout(time.Second)
	begun(t, shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[0], make([]float32, 5))}))
	shimtest.WantError(t, finished(t, w.Comms[0]), errdefs.ErrTimeout, "rank 1 did not arrive")
}

// TestAbortAnything: an abort ends whatever a communicator waits in.
func TestAbortAnything(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T) *shim.Comm{
		"rendezvous": func(t *testing.T) *shim.Comm { return lonely(t, nil) },
		"several places": func(t *testing.T) *shim.Comm {
			id, err := shim.NewUniqueID()
			require.NoError(t, err)
			return lonely(t, []shim.UniqueID{id})
		},
		"nobody listens": func(t *testing.T) *shim.Comm {
			t.Setenv("NCCL_COMM_ID", fmt.Sprintf("127.0.0.1:%d", shimtest.FreePort(t)))
			id, err := shim.NewUniqueID()
			require.NoError(t, err)
			comms, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: 1, NonBlocking: true}})
			begun(t, err)
			return comms[0]
		},
		"call": func(t *testing.T) *shim.Comm {
			c := newQuickWorld(t, 2).Comms[0]
			begun(t, shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 5))}))
			return c
		},
		"split": func(t *testing.T) *shim.Comm {
			return child(t, membership.Origin{Parent: newQuickWorld(t, 2).Comms[1], How: membership.BySplit})
		},
		"shrink, first": func(t *testing.T) *shim.Comm {
			return child(t, membership.Origin{Parent: newQuickWorld(t, 3).Comms[0], How: membership.ByShrink, Exclude: []int{2}})
		},
		"shrink, other": func(t *testing.T) *shim.Comm {
			return child(t, membership.Origin{Parent: newQuickWorld(t, 3).Comms[1], How: membership.ByShrink, Exclude: []int{2}})
		},
		"grow": func(t *testing.T) *shim.Comm {
			c := newQuickWorld(t, 1).Comms[0]
			id, err := membership.GrowID(c)
			require.NoError(t, err)
			return child(t, membership.Origin{Parent: c, How: membership.ByGrow, Ranks: 2, ID: &id})
		},
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, early), func(t *testing.T) {
				c := begin(t)
				parent := parents[c]
				if !early {
					time.Sleep(30 * time.Millisecond)
				}
				errs := shimtest.Concurrently(t, 1, func(int) error { return c.Abort() })
				if errs[0] != nil {
					t.Error(errs[0])
				}
				shimtest.WantError(t, c.AsyncError(), errdefs.ErrAborted)
				<-c.Released()
				// Aborted communicators leave their parents usable.
				if parent != nil {
					if err := finished(t, parent); err != nil {
						t.Errorf("parent: %v", err)
					}
				}
			})
		}
	}
}

// TestAbortIsTold: a rank that aborts at any moment while ranks meet keeps no other rank waiting.
func TestAbortIsTold(t *testing.T) {
	for i := range 2 * 60 {
		id, err := shim.NewUniqueID()
		require.NoError(t, err)
		other := make(chan error, 1)
		go func() {
			comms, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: i % 2}})
			if err == nil { // made before the abort
				<-comms[0].FailedChan()
				err = comms[0].AsyncError()
				_ = comms[0].Abort()
			}
			other <- err
		}()
		comms, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: 1 - i%2, NonBlocking: true}})
		begun(t, err)
		for range (1 << (i / 2 / 4)) - 1 {
			runtime.Gosched()
		}
		require.NoError(t, comms[0].Abort())
		if err := <-other; !errors.Is(err, errdefs.ErrAborted) && !errors.Is(err, errdefs.ErrRemote) {
			t.Error(err)
		}
	}
}

// lonely is a communicator whose other rank never comes.
func lonely(t *testing.T, more []shim.UniqueID) *shim.Comm {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	comms, err := shim.Init([]shim.InitArgs{{ID: id, More: more, Ranks: 2, NonBlocking: true}})
	begun(t, err)
	return comms[0]
}

func child(t *testing.T, o membership.Origin) *shim.Comm {
	t.Helper()
	comms, err := shim.Init([]shim.InitArgs{{From: &o, NonBlocking: true}})
	begun(t, err)
	parents[comms[0]] = o.Parent
	return comms[0]
}

// parents are those of communicators that child has made.
var parents = map[*shim.Comm]*shim.Comm{}

// TestScalable: ranks that meet at several places are one communicator, also where several
// processes have the places.
func TestScalable(t *testing.T) {
	for _, k := range [][2]int{{2, 2}, {5, 2}, {7, 3}, {4, 4}, {9, 1}} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			ids := make([]shim.UniqueID, k[1])
			for i := range ids {
				var err error
				if ids[i], err = shim.NewUniqueID(); err != nil {
					t.Fatal(err)
				}
			}
			w := shimtest.WorldOf(t, make([]*shim.Comm, k[0]))
			shimtest.NoErrors(t, shimtest.Concurrently(t, k[0], func(r int) error {
				comms, err := shim.Init([]shim.InitArgs{{ID: ids[0], More: ids[1:], Ranks: k[0], Rank: r}})
				if err == nil {
					w.Comms[r] = comms[0]
				}
				return err
			}))
			t.Cleanup(w.Destroy)
			w.Must(shimtest.CheckSums)
		})
	}
}

// TestScalableRefusals: whatever is wrong at one place, everyone learns it.
func TestScalableRefusals(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		edit func(args []shim.InitArgs) []shim.InitArgs
		is   error
		says string
	}{
		"twice a rank": {func(a []shim.InitArgs) []shim.InitArgs {
			a[5].Rank = 4
			return a
		}, errdefs.ErrInvalidUsage, "both claim to be rank 4"},
		"never arrives": {func(a []shim.InitArgs) []shim.InitArgs { return a[:5] }, errdefs.ErrTimeout, "never arrived"},
		"ids": {func(a []shim.InitArgs) []shim.InitArgs {
			a[1].More = nil
			return a
		}, errdefs.ErrInvalidUsage, "ids"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := "50s"
			if errors.Is(k.is, errdefs.ErrTimeout) {
				timeout = "3s" // the ranks that come are faster
			}
			cfg := shimtest.Settings(t, "LIGHTPATH_TIMEOUT", timeout)
			ids := make([]shim.UniqueID, 2)
			for i := range ids {
				var err error
				if ids[i], err = bootstrap.NewID(cfg); err != nil {
					t.Fatal(err)
				}
			}
			args := make([]shim.InitArgs, 6)
			for r := range args {
				args[r] = shim.InitArgs{ID: ids[0], More: ids[1:], Ranks: 6, Rank: r}
			}
			errs := shimtest.InitAll(t, k.edit(args), cfg)
			shimtest.WantErrors(t, errs, k.is, k.says)
			for _, err := range errs {
				if err != nil && strings.Contains(err.Error(), "ranks  ") {
					t.Errorf("%v: names no rank", err)
				}
			}
		})
	}
}

// TestEveryOrder does to communicators what programs may do in any order, and what they must
// not: nothing hangs or panics, and calls work in the end where a model says so.
func TestEveryOrder(t *testing.T) {
	t.Setenv("LIGHTPATH_TIMEOUT", "30s")
	rounds := 100
	if testing.Short() {
		rounds = 25
	}
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		make := shimtest.NewWorld
		if rng.IntN(2) == 0 {
			make = newQuickWorld
		}
		w := make(t, 2)
		var m model
		var script []int
		for range 1 + rng.IntN(6) {
			script = append(script, rng.IntN(8))
			m.step(script[len(script)-1])
		}
		errs := w.Each(func(c *shim.Comm) error {
			for _, step := range script {
				doStep(c, step)
				settle(c)
			}
			if err := shimtest.CheckSums(c); !errors.Is(err, errdefs.ErrInProgress) {
				return err
			}
			settle(c)
			return c.State()
		})
		for r, err := range errs {
			if (err == nil) != m.works() {
				t.Errorf("script %v, rank %d: %v, want calls to work: %v", script, r, err, m.works())
			}
		}
		destroyAnyhow(w)
	}
}

// settle waits until nothing goes on in the background.
func settle(c *shim.Comm) {
	for c.Life() != comm.Destroyed && errors.Is(c.State(), errdefs.ErrInProgress) {
		time.Sleep(time.Millisecond)
	}
}

// model is what becomes of a communicator whose ranks all do the same.
type model struct{ suspended, revoked, finalized, destroyed bool }

func (m *model) works() bool { return *m == model{} }

func (m *model) step(step int) {
	switch {
	case m.destroyed:
	case step == 3, step == 4:
		m.destroyed = true
	case m.finalized:
	case step == 5:
		m.revoked = true
	case step == 7:
		m.suspended = false
	case m.suspended, m.revoked:
	case step == 2:
		m.finalized = true
	case step == 6:
		m.suspended = true
	}
}

// doStep does one thing to a communicator; errors are part of the test.
func doStep(c *shim.Comm, step int) {
	switch step {
	case 0:
		_ = shimtest.CheckSums(c)
	case 1:
		comms, _ := shim.Init([]shim.InitArgs{{From: &membership.Origin{Parent: c, How: membership.BySplit},
			NonBlocking: c.NonBlocking}})
		for _, child := range comms {
			_ = child.Abort()
		}
	case 2:
		_ = c.Finalize()
	case 3:
		_ = c.Destroy()
	case 4:
		_ = c.Abort()
	case 5:
		_ = c.Revoke()
	case 6:
		_ = c.Suspend()
	case 7:
		_ = c.Resume()
	}
}

// destroyAnyhow ends communicators in whatever state they are.
func destroyAnyhow(w *shimtest.World) {
	for _, c := range w.Comms {
		if c.Life() != comm.Destroyed {
			_ = c.Abort()
		}
	}
	for _, c := range w.Comms {
		<-c.Released()
	}
}

// TestManyAtOnce: over a hundred communicators alive at the same time, and what they and their
// children leave behind.
func TestManyAtOnce(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	warm := shimtest.NewWorld(t, 2)
	warm.Must(shimtest.CheckSums)
	warm.Destroy()
	before := shimtest.CountResources(t)
	many := 60 // communicators, each with a child
	if testing.Short() {
		many = 10
	}
	var worlds []*shimtest.World
	for range many {
		w := shimtest.NewWorld(t, 2)
		f := w.Derive(membership.Origin{How: membership.BySplit})
		worlds = append(worlds, w, shimtest.WorldOf(t, f.Children))
	}
	for _, w := range worlds {
		w.Must(shimtest.CheckSums)
	}
	for _, w := range worlds {
		w.Destroy()
	}
	before.Await(t)
}

// TestFailedKinLeavesNothing: children that were not made, and aborted ones.
func TestFailedKinLeavesNothing(t *testing.T) {
	w := shimtest.NewWorld(t, 2)
	w.SetTimeout(50 * time.Millisecond)
	before := shimtest.CountResources(t)
	for range 5 {
		for _, o := range []membership.Origin{{How: membership.BySplit}, {How: membership.ByShrink, Exclude: []int{1},
			Color: 0}, {How: membership.ByGrow, Ranks: 3}} {
			o.Parent = w.Comms[0]
			if c, err := shimtest.InitFrom(o); err == nil {
				if o.How != membership.ByShrink {
					t.Errorf("%v without the other rank", o.How)
				}
				_ = c.Destroy()
			}
		}
	}
	before.Await(t)
}
