package shimtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/comm"
	"lightpath/shim/settings"
)

// RunAll runs every collective once and ends the test with the first wrong result.
func (w *World) RunAll(t *testing.T, rng *rand.Rand, count int) {
	t.Helper()
	for _, kind := range OracleKinds {
		k := Collective{Kind: kind, Type: datatype.Float32, Op: datatype.Sum, Count: count, Root: rng.IntN(len(w.Comms)),
			InPlace: rng.IntN(2) == 0}
		require.NoError(t, k.Run(w, rng))
	}
}

// World is a communicator whose ranks are goroutines of the test. Its methods that take a function are for one
// goroutine at a time.
type World struct {
	t     testing.TB
	Comms []*shim.Comm
}

// WorldOf returns a world of communicators that exist. The caller destroys them.
func WorldOf(t testing.TB, comms []*shim.Comm) *World { return &World{t, comms} }

// NewWorld makes a communicator of n ranks by one Init, which reads the environment. The test destroys it at its end.
func NewWorld(t testing.TB, n int) *World {
	t.Helper()
	cfg, err := settings.Load()
	require.NoError(t, err)
	return NewWorldWith(t, n, cfg)
}

// NewWorldWith is [NewWorld] with settings instead of the environment. Tests that use it can run in parallel.
func NewWorldWith(t testing.TB, n int, cfg *settings.Config) *World {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	args := make([]shim.InitArgs, n)
	for r := range args {
		args[r] = shim.InitArgs{ID: id, Ranks: n, Rank: r, Device: r}
	}
	comms, err := shim.InitWith(cfg, args)
	require.NoError(t, err)
	w := WorldOf(t, comms)
	t.Cleanup(w.Destroy)
	return w
}

// NewWorldAt makes a communicator of ranks at these ports of the fabric, by Init of each rank. The test destroys it at
// its end.
func NewWorldAt(t testing.TB, ports ...int) *World {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	w := WorldOf(t, make([]*shim.Comm, len(ports)))
	NoErrors(t, Concurrently(t, len(ports), func(r int) error {
		cfg, err := settings.Load()
		if err != nil {
			return err
		}
		cfg.FabricRank = ports[r]
		w.Comms[r], err = InitOne(shim.InitArgs{ID: id, Ranks: len(ports), Rank: r}, cfg)
		return err
	}))
	t.Cleanup(w.Destroy)
	return w
}

// OnTransports runs f as a subtest for each transport, which it sets.
func OnTransports(t *testing.T, transports []string, f func(t *testing.T)) {
	t.Helper()
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TRANSPORT", transport)
			f(t)
		})
	}
}

// Destroy destroys the communicators that live, and waits until all have released what they hold.
func (w *World) Destroy() {
	for _, c := range w.Comms {
		if c.Life() != comm.Destroyed {
			_ = c.Destroy()
		}
	}
	for _, c := range w.Comms {
		<-c.Released()
	}
}

// SetTimeout changes LIGHTPATH_TIMEOUT of communicators that were made with a longer one. The ranks must be idle and on
// packet planes.
func (w *World) SetTimeout(d time.Duration) {
	for _, c := range w.Comms {
		c.Cfg.Timeout = d
	}
}

// Each runs f once per rank, concurrently, and returns the errors by rank.
func (w *World) Each(f func(c *shim.Comm) error) []error {
	w.t.Helper()
	return Concurrently(w.t, len(w.Comms), func(r int) error { return f(w.Comms[r]) })
}

// Must runs f once per rank, concurrently, and ends the test with the first error.
func (w *World) Must(f func(c *shim.Comm) error) {
	w.t.Helper()
	NoErrors(w.t, w.Each(f))
}

// Concurrently runs f(0) to f(n-1) at once and returns their errors. If they take a minute, it panics, and the stacks
// of all goroutines tell why.
func Concurrently(t testing.TB, n int, f func(int) error) []error {
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

// Settings returns the settings of a test: pairs of names and values, and the settings that [Main] has chosen.
func Settings(t testing.TB, pairs ...string) *settings.Config {
	t.Helper()
	for _, name := range []string{"LIGHTPATH_STATUS_DIR", "NCCL_RAS_ENABLE"} {
		pairs = append(pairs, name, os.Getenv(name))
	}
	cfg, err := settings.Of(pairs...)
	require.NoError(t, err)
	return cfg
}

// InitOne makes one communicator with settings of its own.
func InitOne(args shim.InitArgs, cfg *settings.Config) (*shim.Comm, error) {
	comms, err := shim.InitWith(cfg, []shim.InitArgs{args})
	if err != nil {
		return nil, err
	}
	return comms[0], nil
}
