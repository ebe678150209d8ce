package shim

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/settings"
)

// world is a communicator whose ranks are goroutines of the test.
type world struct {
	t     testing.TB
	comms []*Comm
}

// worldOf returns a world of communicators that exist already.
func worldOf(t testing.TB, comms []*Comm) *world { return &world{t, comms} }

// newWorld makes a communicator of n ranks, all by one Init. The environment must have
// been set.
func newWorld(t testing.TB, n int) *world {
	t.Helper()
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	args := make([]InitArgs, n)
	for r := range args {
		args[r] = InitArgs{ID: id, Ranks: n, Rank: r, Device: r}
	}
	comms, err := Init(args)
	if err != nil {
		t.Fatal(err)
	}
	w := worldOf(t, comms)
	t.Cleanup(w.destroy)
	return w
}

func (w *world) destroy() {
	for _, c := range w.comms {
		if c.Life() != comm.Destroyed {
			_ = c.Destroy()
		}
	}
	for _, c := range w.comms {
		<-c.Released()
	}
}

// limit is LIGHTPATH_TIMEOUT from now on: however long the communicator has taken to be made. The caller has it
// at rest, on packet planes.
func (w *world) limit(d time.Duration) {
	for _, c := range w.comms {
		c.Cfg.Timeout = d
	}
}

// each runs f once per rank, concurrently, and returns the errors by rank.
func (w *world) each(f func(c *Comm) error) []error {
	w.t.Helper()
	return concurrently(w.t, len(w.comms), func(r int) error { return f(w.comms[r]) })
}

// must is each without errors.
func (w *world) must(f func(c *Comm) error) {
	w.t.Helper()
	for r, err := range w.each(f) {
		if err != nil {
			w.t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// concurrently runs f(0..n-1) and fails the test where they do not end.
func concurrently(t testing.TB, n int, f func(int) error) []error {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		panic(fmt.Sprintf("%s: hangs", t.Name()))
	}
	return errs
}

// initOne makes one communicator with settings of its own.
func initOne(args InitArgs, cfg *settings.Config) (*Comm, error) {
	comms, err := InitWith(cfg, []InitArgs{args})
	if err != nil {
		return nil, err
	}
	return comms[0], nil
}
