package host_test

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// TestArenaIsUsed: ranks that share memory go through it, unless an algorithm is asked for.
func TestArenaIsUsed(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	t.Setenv("LIGHTPATH_ALGORITHM", "alltoall:bruck")
	w := shimtest.NewWorld(t, 2)
	for _, c := range w.Comms {
		if !session.Of(c).InArena(calls.AllReduce) || session.Of(c).InArena(calls.AllToAll) ||
			session.Of(c).InArena(calls.Send) {
			t.Errorf("rank %d: AllReduce %v, AlltoAll %v, Send %v through the arena",
				c.Rank, session.Of(c).InArena(calls.AllReduce), session.Of(c).InArena(calls.AllToAll),
				session.Of(c).InArena(calls.Send))
		}
	}
	rng := rand.New(rand.NewPCG(4, 4))
	for _, kind := range []calls.Kind{calls.AllReduce, calls.AllToAll, calls.AllReduce} {
		assert.NoError(t, (shimtest.Collective{Kind: kind, Type: datatype.Int32, Count: 777}).Run(w, rng))
	}
}

// TestGroupsThroughArena: collectives of a group keep their order, and groups that name
// communicators in different orders do not wait for each other.
func TestGroupsThroughArena(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	a, b := shimtest.NewWorld(t, 2), shimtest.NewWorld(t, 2)
	for range 20 {
		errs := shimtest.Concurrently(t, 2, func(r int) error {
			x, y, z := make([]float32, 50000), make([]float32, 3), make([]float32, 50000)
			for i := range x {
				x[i] = float32(r + 1)
			}
			first, second := shimtest.AllReduce(a.Comms[r], x), shimtest.AllReduce(b.Comms[r], y)
			third := calls.Call{Comm: a.Comms[r], Kind: calls.Broadcast, Type: datatype.Float32, Count: 50000, Peer: 1,
				Send: unsafe.Pointer(&x[0]), Recv: unsafe.Pointer(&z[0])}
			group := []calls.Call{first, third, second}
			if r == 1 {
				group = []calls.Call{second, first, third}
			}
			if err := shim.Run(group); err != nil {
				return err
			}
			for i := range z {
				if z[i] != 3 {
					t.Errorf("rank %d: element %d is %v", r, i, z[i])
					break
				}
			}
			return nil
		})
		shimtest.NoErrors(t, errs)
	}
}

// TestArenaAllocatesNothing counts over whole calls on all ranks at once.
func TestArenaAllocatesNothing(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := shimtest.NewWorld(t, 2)
	for _, count := range []int{2, 3000, 300000} {
		group := [2][]calls.Call{}
		for r := range group {
			group[r] = []calls.Call{shimtest.AllReduce(w.Comms[r], make([]float32, count))}
		}
		ranksAllocateNothing(t, group)
	}
}

// ranksAllocateNothing checks that calls of two ranks on threads of their own allocate nothing after the first four.
func ranksAllocateNothing(t *testing.T, group [2][]calls.Call) {
	t.Helper()
	if shimtest.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	const first, runs = 4, 50
	loop := func(r, n int) {
		for range n {
			assert.NoError(t, shim.Run(group[r]))
		}
	}
	other := make(chan struct{})
	go func() { loop(1, first+1+runs); close(other) }()
	loop(0, first)
	if n := testing.AllocsPerRun(runs, func() { loop(0, 1) }); n >= 1 {
		t.Errorf("%d elements: %v allocations a call", group[0][0].Count, n)
	}
	<-other
}

// TestNoRoomForArena: where shared memory holds the rings alone, calls go by frames.
func TestNoRoomForArena(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := shimtest.NewWorld(t, 2)
	for _, c := range w.Comms {
		session.Of(c).Arena = nil // as if there had been no room: see transport/shm
	}
	assert.NoError(t, (shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Int32, Count: 777}).Run(w,
		rand.New(rand.NewPCG(5, 5))))
}
