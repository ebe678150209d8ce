package optical_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/emulator"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/shimtest"
	"lightpath/shim/ticket"
)

// TestRounds: random matrices, some of them again, by either plan, over one to four planes, with
// ranks that come late and collectives between.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		n, planes int
		demand    string
		wait      string
	}{{2, 1, "spectra", "0"}, {2, 3, "plain", "0"}, {3, 2, "spectra", "0"}, {5, 4, "spectra", "1"}, {5, 2, "plain", "0"},
		{8, 2, "spectra", "0"}} {
		t.Run(fmt.Sprintf("%d/%d/%s", c.n, c.planes, c.demand), func(t *testing.T) {
			server := shimtest.UseFastEmulator(t, c.n, c.planes)
			t.Setenv("LIGHTPATH_DEMAND", c.demand)
			t.Setenv("LIGHTPATH_DEMAND_WAIT", "40s")
			t.Setenv("LIGHTPATH_PLAN_WAIT", c.wait)
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
			rng := rand.New(rand.NewPCG(uint64(c.n), uint64(c.planes)))
			w := shimtest.NewWorld(t, c.n)
			var m shimtest.Messages
			for i := range 8 {
				if i == 0 || rng.IntN(2) == 0 {
					m = shimtest.RandomMessages(rng, c.n, []int{20, 3000, 20000}[i%3])
				}
				late := make([]time.Duration, c.n)
				late[rng.IntN(c.n)] = time.Duration(rng.IntN(3000)) * time.Microsecond
				if err := m.Exchange(w, i, func(r int) time.Duration { return late[r] }); err != nil {
					t.Fatalf("exchange %d: %v", i, err)
				}
				if i%3 == 2 {
					w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 100))}) })
				}
			}
			shimtest.NoLosses(t, server)
		})
	}
}

// TestRoundOfSome checks that ranks with traffic do not wait long for ranks that do not call, and that later rounds of
// all ranks work again.
func TestRoundOfSome(t *testing.T) {
	server := shimtest.UseFastEmulator(t, 4, 2)
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "300ms")
	w := shimtest.NewWorld(t, 4)
	big := func() []int32 { return make([]int32, 50000) }
	for i := range 6 {
		w.Must(func(c *shim.Comm) error {
			if c.Rank > 1 {
				return nil
			}
			in := big()
			if err := shim.Run([]calls.Call{shimtest.MessageInt32(calls.Send, c, 1-c.Rank, shimtest.Ramp(i+c.Rank, len(in))),
				shimtest.MessageInt32(calls.Recv, c, 1-c.Rank, in)}); err != nil {
				return err
			}
			return shimtest.CompareInt32(in, shimtest.Ramp(i+1-c.Rank, len(in)))
		})
	}
	before := framesOf(t, server)
	var m shimtest.Messages
	for i := range 300 {
		m = shimtest.RandomMessages(rand.New(rand.NewPCG(uint64(i), 1)), 4, 30000)
		// A collective brings ranks that have posted differently into step.
		w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1))}) })
		require.NoError(t, m.Exchange(w, i, shimtest.NoDelay))
		if framesOf(t, server) > before+1000 {
			return
		}
	}
	t.Error("no round of all ranks was given circuits")
}

// framesOf counts the frames that all planes have carried.
func framesOf(t testing.TB, server *emulator.Server) (n uint64) {
	t.Helper()
	for _, frames := range shimtest.FramesByPlane(t, server) {
		n += frames
	}
	return n
}

// TestRoundBesideCollective: ranks wait in a group for one that is in a collective first.
func TestRoundBesideCollective(t *testing.T) {
	shimtest.UseFastEmulator(t, 3, 2)
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "40s")
	w := shimtest.NewWorld(t, 3)
	began := time.Now()
	w.Must(func(c *shim.Comm) error {
		in := make([]int32, 40000)
		reduce := func() error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1000))}) }
		switch c.Rank {
		case 0:
			if err := shim.Run([]calls.Call{shimtest.MessageInt32(calls.Send, c, 1, shimtest.Ramp(3, len(in)))}); err != nil {
				return err
			}
			return reduce()
		case 1:
			if err := shim.Run([]calls.Call{shimtest.MessageInt32(calls.Recv, c, 0, in)}); err != nil {
				return err
			}
			if err := reduce(); err != nil {
				return err
			}
			return shimtest.CompareInt32(in, shimtest.Ramp(3, len(in)))
		}
		return reduce()
	})
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("a round was waited for to its end, %v, though it could not be completed", took)
	}
}

// TestChains: single sends and receives down a line of ranks, in no common order.
func TestChains(t *testing.T) {
	shimtest.UseFastEmulator(t, 4, 2)
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "2ms")
	w := shimtest.NewWorld(t, 4)
	w.Must(func(c *shim.Comm) error {
		me, n := c.Rank, c.Ranks
		for i := range 20 {
			buf := shimtest.Ramp(i, 30000)
			if me > 0 {
				clear(buf)
				if err := shim.Run([]calls.Call{shimtest.MessageInt32(calls.Recv, c, me-1, buf)}); err != nil {
					return err
				}
			}
			if err := shimtest.CompareInt32(buf, shimtest.Ramp(i, len(buf))); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			if me < n-1 {
				if err := shim.Run([]calls.Call{shimtest.MessageInt32(calls.Send, c, me+1, buf)}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// TestRoundMismatch: a message whose ends differ in size is an error at once that names both.
func TestRoundMismatch(t *testing.T) {
	shimtest.UseFastEmulator(t, 3, 2)
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "40s")
	w := shimtest.NewWorld(t, 3)
	for r, err := range w.Each(func(c *shim.Comm) error {
		me := c.Rank
		n := 40000
		if me == 2 {
			n = 40001
		}
		return shim.Run([]calls.Call{shimtest.MessageInt32(calls.Send, c, (me+1)%3, make([]int32, 40000)),
			shimtest.MessageInt32(calls.Recv, c, (me+2)%3, make([]int32, n))})
	}) {
		shimtest.WantError(t, err, errdefs.ErrMismatch,
			"message 0 from rank 1 to rank 2: rank 1 sends 160000 bytes, rank 2 receives 160004")
		if err == nil {
			t.Errorf("rank %d saw no error", r)
		}
	}
}

// TestRoundOfTheDead: a rank that ends instead of posting ends the wait of the others.
func TestRoundOfTheDead(t *testing.T) {
	shimtest.UseFastEmulator(t, 3, 2)
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "60s")
	w := shimtest.NewWorld(t, 3)
	for r, err := range w.Each(func(c *shim.Comm) error {
		if c.Rank == 2 {
			time.Sleep(20 * time.Millisecond)
			return c.Abort()
		}
		return shim.Run([]calls.Call{shimtest.MessageInt32(calls.Send, c, (c.Rank+1)%3, make([]int32, 9)),
			shimtest.MessageInt32(calls.Recv, c, (c.Rank+2)%3, make([]int32, 9))})
	}) {
		if r < 2 {
			shimtest.WantError(t, err, errdefs.ErrAborted, "rank 2 aborted")
		}
	}
}

// TestRoundUndrained: a plane that switches with bytes of an exchange on the wire fails the call on
// every rank, with the plane and the epoch.
func TestRoundUndrained(t *testing.T) {
	shimtest.UseEmulator(t, 3, 1, func(f *fabric.Fabric) {
		f.OCS[0].Reconfig = 20 * time.Microsecond
		f.Planes[0].Bandwidth = 5e6 // so that there is always something on the wire
	})
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "40s")
	t.Setenv("LIGHTPATH_FAULT", "skip-drain:0:1")
	w := shimtest.NewWorld(t, 3)
	for r, err := range w.Each(func(c *shim.Comm) error {
		var group []calls.Call
		for peer := range 3 {
			if peer != c.Rank {
				group = append(group, shimtest.MessageInt32(calls.Send, c, peer, make([]int32, 20000)),
					shimtest.MessageInt32(calls.Recv, c, peer, make([]int32, 20000)))
			}
		}
		return shim.Run(group)
	}) {
		if err == nil || !strings.Contains(err.Error(), "plane 0") || !strings.Contains(err.Error(), "epoch") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestRoundCutShort: a rank that ends in the middle of an exchange ends it for all.
func TestRoundCutShort(t *testing.T) {
	server := shimtest.UseEmulator(t, 3, 1, func(f *fabric.Fabric) {
		f.OCS[0].Reconfig = 20 * time.Microsecond
		f.Planes[0].Bandwidth = 1e6 // seconds for what is sent
	})
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "40s")
	w := shimtest.NewWorld(t, 3)
	go func() {
		shimtest.Eventually(func() bool { return framesOf(t, server) > 0 })
		_ = w.Comms[2].Abort()
	}()
	shimtest.WantErrors(t, w.Each(func(c *shim.Comm) error {
		n := c.Ranks
		return shim.Run([]calls.Call{
			shimtest.MessageInt32(calls.Send, c, (c.Rank+1)%n, make([]int32, 1<<20)),
			shimtest.MessageInt32(calls.Recv, c, (c.Rank+n-1)%n, make([]int32, 1<<20)),
		})
	}), errdefs.ErrAborted, "rank 2 aborted")
}

// TestRoundWithoutPlanes: with a plane out of service rounds use the others, without any the
// packet planes.
func TestRoundWithoutPlanes(t *testing.T) {
	server := shimtest.UseFastEmulator(t, 4, 2)
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "40s")
	w := shimtest.NewWorld(t, 4)
	var out shimtest.Outage
	out.Apply(w)
	rng := rand.New(rand.NewPCG(8, 8))
	exchange := func(i int) {
		t.Helper()
		require.NoError(t, shimtest.RandomMessages(rng, 4, 20000).Exchange(w, i, shimtest.NoDelay))
	}
	var before []uint64
	for i, down := range []uint64{0, 0b01, 0b10, 0b11, 0} {
		out.Down.Store(down)
		before = shimtest.FramesByPlane(t, server)
		exchange(2 * i)
		exchange(2*i + 1)
		for j, frames := range shimtest.FramesByPlane(t, server) {
			if used := frames > before[j]; used == (down>>j&1 != 0) {
				t.Errorf("planes %#b out of service: plane %d used: %v", down, j, used)
			}
		}
	}
}

// TestDemandPlansPass checks that the leader's plans, from any maps of the planes, pass the checker.
func TestDemandPlansPass(t *testing.T) {
	shimtest.UseFastEmulator(t, 5, 3)
	w := shimtest.NewWorld(t, 5)
	site := &circuits.Of(w.Comms[0]).Site
	book, err := planning.OpenBook(site, new(planning.Known), w.Comms[0].Log)
	require.NoError(t, err)
	defer book.Close()
	rng := rand.New(rand.NewPCG(4, 2))
	for range 50 {
		var pairs []planning.Pair
		for src := range 5 {
			for dst := range 5 {
				if src != dst && rng.IntN(3) > 0 {
					pairs = append(pairs, planning.Pair{Src: src, Dst: dst, Bytes: int64(rng.IntN(1 << uint(1+rng.IntN(20))))})
				}
			}
		}
		d := planning.NewDemand(pairs, 5)
		for range 2 {
			maps := make([]circuit.Permutation, 3)
			for j := range maps {
				maps[j] = rng.Perm(5)
			}
			plan, err := book.Demand(d, maps)
			require.NoError(t, err)
			p := site.DemandProblem(d, 3)
			for _, e := range plan.Planes { // the checker's planes begin dark
				if len(e) > 0 {
					plan.CCTUS = max(plan.CCTUS, e[len(e)-1].EndUS)
				}
			}
			if _, err := check.Check(p, plan); err != nil {
				t.Fatal(err)
			}
			got, err := ticket.DecodeHolds(ticket.EncodeHolds(5, plan), 5, 3)
			require.NoError(t, err)
			require.NoError(t, sameHolds(got, plan))
		}
	}
}

// sameHolds compares the holds of two plans.
func sameHolds(a, b *plans.Plan) error {
	for j := range b.Planes {
		k := 0
		for _, e := range b.Planes[j] {
			if e.Kind != plans.Hold {
				continue
			}
			if k >= len(a.Planes[j]) || !a.Planes[j][k].To.Equal(e.To) ||
				!plans.SameUS(a.Planes[j][k].EndUS-a.Planes[j][k].StartUS, e.EndUS-e.StartUS) {
				return fmt.Errorf("plane %d: hold %d differs", j, k)
			}
			k++
		}
		if k != len(a.Planes[j]) {
			return fmt.Errorf("plane %d: %d holds, not %d", j, len(a.Planes[j]), k)
		}
	}
	return nil
}
