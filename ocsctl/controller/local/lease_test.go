package local

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// Two holders that ask for the planes again and again, as two communicators do, always
// both finish; a holder that is killed gives its planes back.
func TestHoldersDoNotDeadlock(t *testing.T) {
	s := start(t)
	cs := dialAll(t, s)
	masks := [][]uint64{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var inUse uint64
	for i, m := range masks {
		wg.Go(func() {
			for k := range 60 {
				mask := m[k%3]
				if _, err := cs[i].Acquire(ocsctl.Lease{Mask: mask, Holder: uint64(i)}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if inUse&mask != 0 {
					t.Error("a plane is held twice")
				}
				inUse |= mask
				mu.Unlock()
				mu.Lock()
				inUse &^= mask
				mu.Unlock()
				assert.NoError(t, cs[i].Release(mask, uint64(i)))
			}
		})
	}
	wg.Wait()
	if _, err := cs[0].Acquire(ocsctl.Lease{Mask: 3, Holder: 9}); err != nil {
		t.Fatal(err)
	}
	cs[0].conn.shut()
	if _, err := cs[1].Acquire(ocsctl.Lease{Mask: 1, Holder: 9}); err != nil {
		t.Fatal(err)
	}
}

// TestShare: holders of disjoint ports hold a plane together. Each moves its own circuits, and its ranks see its moves
// alone as epochs.
func TestShare(t *testing.T) {
	s := start(t)
	cs := dialAll(t, s)
	holders, pairs := []uint64{20, 21}, [][]int{{0, 2}, {1, 3}}
	for i, ports := range pairs {
		if _, err := cs[ports[0]].Acquire(ocsctl.Lease{Mask: 1, Holder: holders[i], Ports: ports}); err != nil {
			t.Fatal(err)
		}
	}
	want := []uint32{2, 1, 2, 1} // by port
	dark, joined := circuit.AllDark(4), circuit.Shift(4, 2)
	for epoch := range uint32(2) {
		for i, ports := range pairs {
			for _, p := range ports {
				if epoch < want[p] {
					require.NoError(t, cs[p].Post(0, epoch, holders[i], []circuit.Permutation{joined, dark}[epoch]))
				}
			}
		}
	}
	for p, c := range cs {
		await.Until(t, "the port's moves", func() bool { e, _ := c.Poll(0); return e == want[p] })
	}
	for p, c := range cs {
		if st := c.State(0); st.Epoch != want[p] || !st.Map.Equal(circuit.Permutation{-1, 3, -1, 1}) {
			t.Errorf("port %d: %v", p, st)
		}
	}
	require.NoError(t, cs[0].Post(0, 2, holders[1], joined))
	refused(t, cs[0], holders[1], ocsctl.ErrNotHolder, "holder 0x14 of port 0")
}

// A plane out of service is not granted, and the error says why. It is granted again once it is back.
func TestPlaneDownAndBack(t *testing.T) {
	s := start(t)
	cs := dialAll(t, s)
	require.NoError(t, s.core.Disable(1, "cleaning", "ann"))
	if mask, err := cs[0].Acquire(ocsctl.Lease{Mask: 3, Holder: 7}); err != nil || mask != 1 {
		t.Errorf("%#x, %v", mask, err)
	}
	_, err := cs[1].Acquire(ocsctl.Lease{Mask: 2, Holder: 7})
	if !errors.Is(err, ocsctl.ErrPlaneDown) || !strings.Contains(err.Error(), "cleaning") {
		t.Error(err)
	}
	if err := cs[0].Release(2, 7); err == nil {
		t.Error("released what was not granted")
	}
	if _, err := cs[0].Poll(1); err != nil {
		t.Errorf("who uses a plane that is disabled may go on: %v", err)
	}
	require.NoError(t, s.core.Enable(1, "ann"))
	if mask, err := cs[1].Acquire(ocsctl.Lease{Mask: 2, Holder: 7}); err != nil || mask != 2 {
		t.Errorf("after an operator has it back: %#x, %v", mask, err)
	}
}

// A grant orders what two holders in one process do with the planes' memory: for the race detector too.
func TestGrantIsAnOrder(t *testing.T) {
	s := start(t)
	a, b := dial(t, s, 0), dial(t, s, 1)
	for round := range uint64(20) {
		if _, err := a.Acquire(ocsctl.Lease{Mask: 1, Holder: 2*round + 1}); err != nil {
			t.Fatal(err)
		}
		memory, asked := 0, make(chan error, 1)
		go func() {
			_, err := b.Acquire(ocsctl.Lease{Mask: 1, Holder: 2*round + 2})
			memory++
			asked <- err
		}()
		await.Until(t, "the second waits", func() bool {
			st, err := s.core.Snapshot()
			return err == nil && len(st.Queue) == 1
		})
		memory++
		require.NoError(t, a.Release(1, 2*round+1))
		if err := <-asked; err != nil || memory != 2 {
			t.Fatal(memory, err)
		}
		require.NoError(t, b.Release(1, 2*round+2))
	}
}

// The post of a rank that has said goodbye stays valid.
func TestPostsOutliveGoodbye(t *testing.T) {
	s := start(t)
	cs := dialHolding(t, s, 0)
	next := circuit.Shift(4, 2)
	require.NoError(t, cs[3].Post(0, 0, holder, next))
	shut(t, cs[3])
	for _, c := range cs[:3] {
		require.NoError(t, c.Post(0, 0, holder, next))
	}
	await.Until(t, "the plane has switched", func() bool {
		e, err := cs[0].Poll(0)
		require.NoError(t, err)
		return e == 1
	})
	again := dial(t, s, 3)
	if st := again.State(0); st.Epoch != 1 || !st.Map.Equal(next) {
		t.Errorf("%v", st)
	}
}

// TestWanted checks that a holder is told of others that want its planes.
func TestWanted(t *testing.T) {
	s := start(t)
	a, b := dial(t, s, 0), dial(t, s, 1)
	told := make(chan [2]uint64, 1)
	a.OnWanted(func(holder, mask uint64) { told <- [2]uint64{holder, mask} })
	if _, err := a.Acquire(ocsctl.Lease{Mask: 1, Holder: 7}); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ocsctl.Lease{Mask: 1, Holder: 8})
		asked <- err
	}()
	if got := <-told; got != [2]uint64{7, 1} {
		t.Errorf("told %v", got)
	}
	require.NoError(t, a.Release(1, 7))
	require.NoError(t, <-asked)
}
