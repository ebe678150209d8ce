package optical_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/ocsctl/emulator"
	"lightpath/shim"
	"lightpath/shim/arbiter"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// iteration is the calls of an iteration whose plans have other circuits.
var iteration = []shimtest.Collective{
	{Kind: calls.AllReduce, Type: datatype.Float32, Count: 20000},
	{Kind: calls.AllToAll, Type: datatype.Float32, Count: 8000},
	{Kind: calls.AllGather, Type: datatype.Float32, Count: 3000},
}

// TestIterationAhead checks that a repeating sequence is learnt: its tickets go out ahead, and each plan ends where the
// next one begins.
func TestIterationAhead(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	w := shimtest.NewWorld(t, 4)
	rng := rand.New(rand.NewPCG(1, 2))
	l := live.Of(w.Comms[0])
	learnt := shimtest.Eventually(func() bool {
		for _, k := range iteration {
			require.NoError(t, k.Run(w, rng))
		}
		hits, _ := l.Predictions()
		return hits >= 10*uint64(len(iteration))
	})
	if hits, misses := l.Predictions(); !learnt || misses > 3 {
		t.Fatalf("%d tickets that went out ahead were used, %d were not", hits, misses)
	}
	for _, c := range w.Comms {
		if n := circuits.Of(c).Uses(); n.Ahead < 10 {
			t.Errorf("rank %d: %+v", c.Rank, n)
		}
	}
	shimtest.NoLosses(t, server)
}

// TestMispredictions runs traces that repeat only in part. Results are those of the calls, whatever was predicted.
func TestMispredictions(t *testing.T) {
	server := shimtest.UseEmulator(t, 3, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	w := shimtest.NewWorld(t, 3)
	rng := rand.New(rand.NewPCG(3, 4))
	l := live.Of(w.Comms[0])
	other := shimtest.Collective{Kind: calls.Broadcast, Type: datatype.Int32, Count: 777}
	small := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Float32, Count: 20001}
	run := func(k shimtest.Collective) {
		t.Helper()
		require.NoError(t, k.Run(w, rng))
	}
	deadline := time.Now().Add(40 * time.Second)
	missed := func() bool { _, misses := l.Predictions(); return misses >= 10 }
	for n := 0; !missed() && time.Now().Before(deadline) || n < 60; n++ {
		for i, k := range iteration {
			switch r := rng.IntN(20); {
			case r == 0 && n > 5:
				run(other)
			case r == 1 && n > 5:
				run(small)
			case r == 2 && i == 1 && n > 5:
				continue // it does not come
			}
			run(k)
		}
	}
	hits, misses := l.Predictions()
	if t.Logf("%d hits, %d misses", hits, misses); hits == 0 || misses == 0 {
		t.Error("nothing was predicted, or all of it rightly")
	}
	shimtest.NoLosses(t, server)
}

// repeated is a world whose ranks have the ticket of the next call in hand.
func repeated(t *testing.T, ranks int) (*shimtest.World, *emulator.Server) {
	t.Helper()
	server := shimtest.UseEmulator(t, ranks, 2, nil)
	w := shimtest.NewWorld(t, ranks)
	repeat(t, w)
	return w, server
}

// repeat calls until tickets go out ahead.
func repeat(t *testing.T, w *shimtest.World) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 6))
	if !shimtest.Eventually(func() bool {
		require.NoError(t, iteration[0].Run(w, rng))
		hits, _ := live.Of(w.Comms[0]).Predictions()
		return hits > 3
	}) {
		t.Fatal("no ticket went out ahead")
	}
}

// TestDivergence checks that ranks that call different things are named, though one has begun with its ticket.
func TestDivergence(t *testing.T) {
	w, _ := repeated(t, 2)
	k := iteration[0]
	errs := shimtest.Concurrently(t, 2, func(r int) error {
		if r == 1 {
			return shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[1], make([]float32, 3))})
		}
		return shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[0], make([]float32, k.Count))})
	})
	for r, err := range errs {
		if !errors.Is(err, errdefs.ErrMismatch) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestStoppedInGap checks that a rank that does not come is named.
func TestStoppedInGap(t *testing.T) {
	w, _ := repeated(t, 2)
	w.Comms[0].Cfg.Timeout = time.Second
	err := shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[0], make([]float32, iteration[0].Count))})
	if err == nil || !strings.Contains(err.Error(), "receive from rank 1") {
		t.Error(err)
	}
}

// TestDisabledInGap checks that an operator gets a plane that a repeating job holds: the job goes on with the other
// one, and has both again later.
func TestDisabledInGap(t *testing.T) {
	w, server := repeated(t, 2)
	rng := rand.New(rand.NewPCG(7, 8))
	use := func() (n int) {
		require.NoError(t, iteration[0].Run(w, rng))
		return circuits.Of(w.Comms[0]).Machine.Ticket().Use.Len()
	}
	require.NoError(t, server.Core().Disable(1, "maintenance", "test"))
	if !shimtest.Eventually(func() bool { return use() == 1 }) {
		t.Fatal("the job keeps a disabled plane")
	}
	require.NoError(t, server.Core().Enable(1, "test"))
	hits, _ := live.Of(w.Comms[0]).Predictions()
	if !shimtest.Eventually(func() bool {
		n := use()
		now, _ := live.Of(w.Comms[0]).Predictions()
		return n == 2 && now > hits+3
	}) {
		t.Error("no ticket goes out ahead on both planes again")
	}
	shimtest.NoLosses(t, server)
}

// TestOtherJobInGap checks two jobs at other ports of the same planes: one whose calls repeat gives its planes to the
// other, in a gap and in a loop.
func TestOtherJobInGap(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	w, other := shimtest.NewWorldAt(t, 0, 1), shimtest.NewWorldAt(t, 2, 3)
	rng := rand.New(rand.NewPCG(9, 1))
	hits := func() uint64 { n, _ := live.Of(w.Comms[0]).Predictions(); return n }
	repeat := func() {
		t.Helper()
		from := hits()
		if !shimtest.Eventually(func() bool { require.NoError(t, iteration[0].Run(w, rng)); return hits() > from+3 }) {
			t.Fatal("no ticket goes out ahead")
		}
	}
	for range 3 {
		repeat()
		began := time.Now()
		require.NoError(t, iteration[1].Run(other, rng))
		if took := time.Since(began); took > arbiter.GapHold/2 {
			t.Errorf("the other job's call took %v", took)
		}
	}
	mine := rand.New(rand.NewPCG(9, 2))
	beside(t, func() error { return iteration[0].Run(w, mine) }, func() {
		for range 10 {
			require.NoError(t, iteration[1].Run(other, rng))
		}
	})
	shimtest.NoLosses(t, server)
}

// beside runs f while another goroutine runs loop again and again.
func beside(t *testing.T, loop func() error, f func()) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
				if err := loop(); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	f()
	close(stop)
	require.NoError(t, <-ended)
}

// TestNewCommunicatorInGap: a rank makes and calls a new communicator on the planes while another rank has begun the
// next operation with a ticket ahead, and so keeps them. The new one's call soon goes on with packet planes.
func TestNewCommunicatorInGap(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	w := shimtest.NewWorldAt(t, 0, 1, 2)
	repeat(t, w)
	used := func() uint64 { return circuits.Of(w.Comms[0]).Uses().Ahead }
	var took time.Duration
	for tries := 0; took == 0; tries++ { // on a loaded machine a rank may call before its ticket is here
		if tries == 100 {
			t.Fatal("rank 0 never has the ticket of its next call")
		}
		next, err := iteration[0].Prepare(w, rand.New(rand.NewPCG(4, 2)))
		require.NoError(t, err)
		before := used()
		time.Sleep(50 * time.Millisecond) // the ticket comes
		require.NoError(t, next.Run(w, func(r int) time.Duration {
			if r != 2 {
				return 0
			}
			for end := time.Now().Add(time.Second); used() == before; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					return 0
				}
			}
			hits, _ := live.Of(w.Comms[0]).Predictions()
			pair := shimtest.NewWorldAt(t, 2, 3)
			began := time.Now()
			if err := iteration[1].Run(pair, rand.New(rand.NewPCG(4, 3))); err != nil {
				t.Error(err)
			}
			took = time.Since(began)
			if now, _ := live.Of(w.Comms[0]).Predictions(); now != hits {
				t.Error("the operation has not waited for rank 2")
			}
			return 0
		}))
	}
	if took < arbiter.MaxHold || took > arbiter.GrantWait {
		t.Errorf("the call of the new communicator took %v", took)
	}
	shimtest.NoLosses(t, server)
}

// TestSharedPorts: ranks call another communicator before the one whose ticket they have in hand, so they decline the
// ticket, and the planes are given back.
func TestSharedPorts(t *testing.T) {
	w, server := repeated(t, 3)
	pair := shimtest.NewWorldAt(t, 1, 2)
	rng := rand.New(rand.NewPCG(4, 1))
	require.NoError(t, iteration[0].Run(w, rng)) // its end says that ranks have another communicator
	k := iteration[0]
	for range 5 {
		shimtest.NoErrors(t, shimtest.Concurrently(t, 3, func(r int) error {
			mine := func(c *shim.Comm) error {
				return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, k.Count))})
			}
			if r > 0 {
				if r == 1 {
					time.Sleep(20 * time.Millisecond) // rank 0 calls first
				}
				if err := mine(pair.Comms[r-1]); err != nil {
					return err
				}
			}
			return mine(w.Comms[r])
		}))
	}
	shimtest.NoLosses(t, server)
}

// TestLeaveInGap checks that a rank can leave while its ticket for a next call is there.
func TestLeaveInGap(t *testing.T) {
	for leaver := range 2 {
		w, server := repeated(t, 2)
		require.NoError(t, w.Comms[leaver].Destroy())
		other := 1 - leaver
		err := shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[other], make([]float32, iteration[0].Count))})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("rank ", leaver)) {
			t.Errorf("rank %d has left: %v", leaver, err)
		}
		_ = server
	}
}
