package staged_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/shimtest"
	"lightpath/shim/steps"
)

// relayed is how long messages of these tests are: more pieces than slots, and a part of one.
const relayed = 5<<16 + 777

// bytesOn is memory of a rank's device with bytes that tell where they are from.
func bytesOn(g *shimtest.GPUs, rank, from, size int) unsafe.Pointer {
	at := g.Memory(rank, max(size, 1))
	rng := rand.New(rand.NewPCG(uint64(from), uint64(size)))
	for i, b := 0, g.Bytes(at, size); i < size; i++ {
		b[i] = byte(rng.Uint32())
	}
	return at
}

// alike compares memory of devices.
func alike(g *shimtest.GPUs, a, b unsafe.Pointer, size int) error {
	if !bytes.Equal(g.Bytes(a, size), g.Bytes(b, size)) {
		return errors.New("what has arrived is not what was sent")
	}
	return nil
}

// message is a send or receive of bytes on a rank's first stream.
func message(g *shimtest.GPUs, c *shim.Comm, kind calls.Kind, peer int, at unsafe.Pointer, size int) calls.Call {
	return calls.Call{Comm: c, Kind: kind, Type: datatype.Uint8, Peer: int32(peer), Count: uint64(size), Send: at,
		Recv: at, Stream: g.Streams[c.Rank][0]}
}

// TestMessagesMoveByThemselves: a rank sends and receives in one group, and the other end makes the same calls one
// after another. Later messages depend on earlier ones, in part through a third rank.
func TestMessagesMoveByThemselves(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "tcp"}, func(t *testing.T) {
		t.Setenv("LIGHTPATH_STAGING", "64K")
		t.Setenv("LIGHTPATH_PLANES", "2")
		g := shimtest.UseGPUs(t, 3, 1)
		w := shimtest.NewWorld(t, 3)
		var sent, got [3]unsafe.Pointer
		for r := range 3 {
			sent[r], got[r] = bytesOn(g, r, r, relayed), g.Memory(r, relayed)
		}
		// 0 sends to 1, which passes on to 2, which then sends to 0: all but the first one by one.
		w.Must(func(c *shim.Comm) error {
			groups := map[int][][]calls.Call{
				0: {{message(g, c, calls.Recv, 2, got[0], relayed), message(g, c, calls.Send, 1, sent[0], relayed)}},
				1: {{message(g, c, calls.Recv, 0, got[1], relayed)}, {message(g, c, calls.Send, 2, got[1], relayed)}},
				2: {{message(g, c, calls.Recv, 1, got[2], relayed)}, {message(g, c, calls.Send, 0, got[2], relayed)}},
			}
			for _, group := range groups[c.Rank] {
				if err := shim.Run(group); err != nil {
					return err
				}
			}
			return g.SynchronizeRank(c.Rank)
		})
		for r := range 3 {
			if err := alike(g, got[r], sent[0], relayed); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// exchangeAll sends from each rank to each, itself too, several messages per pair.
func exchangeAll(g *shimtest.GPUs, w *shimtest.World, sizes []int) error {
	n := len(w.Comms)
	sent, got := make([][]unsafe.Pointer, n*n), make([][]unsafe.Pointer, n*n)
	group := make([][]calls.Call, n)
	for a := range n {
		for b := range n {
			for _, size := range sizes {
				from, to := bytesOn(g, a, n*a+b, size), g.Memory(b, max(size, 1))
				sent[n*a+b], got[n*a+b] = append(sent[n*a+b], from), append(got[n*a+b], to)
				group[a] = append(group[a], message(g, w.Comms[a], calls.Send, b, from, size))
				group[b] = append(group[b], message(g, w.Comms[b], calls.Recv, a, to, size))
			}
		}
	}
	w.Must(func(c *shim.Comm) error {
		if err := shim.Run(group[c.Rank]); err != nil {
			return err
		}
		return g.SynchronizeRank(c.Rank)
	})
	for pair := range sent {
		for i, size := range sizes {
			if err := alike(g, got[pair][i], sent[pair][i], size); err != nil {
				return fmt.Errorf("message %d from %d to %d: %w", i, pair/n, pair%n, err)
			}
		}
	}
	return nil
}

// TestGroupsAreBounded checks that page-locked memory does not grow with the number of messages of a group.
func TestGroupsAreBounded(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	const n = 3
	g := shimtest.UseGPUs(t, n, 1)
	w := shimtest.NewWorld(t, n)
	for _, size := range []int{relayed, 4 << 20} {
		require.NoError(t, exchangeAll(g, w, []int{size}))
	}
	// of one rank: as many messages as there are peers, both ways
	staging := int64(2 * (n - 1) * steps.RelaySlots * 64 << 10)
	// sizes are powers of two; a page for each pair of words
	bound := n * (2*staging + int64(2*(n-1)+1)*shimtest.PageSize + shimtest.PageSize)
	if _, most := g.Locked(); most > bound {
		t.Errorf("%d bytes were locked, want at most %d", most, bound)
	}
}

// TestGroupsOfManyMessages: messages of a pair follow each other, whatever way each of them goes.
func TestGroupsOfManyMessages(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	t.Setenv("LIGHTPATH_PLANES", "3")
	g := shimtest.UseGPUs(t, 3, 1)
	w := shimtest.NewWorld(t, 3)
	for range 3 {
		require.NoError(t, exchangeAll(g, w, []int{relayed, 10, 3 << 16, 1<<17 + 1, 1 << 17, 0, relayed + 1}))
	}
}

// TestGroupsOfOtherSizes: ends of a message that differ fail as they do outside groups, and no stream hangs.
func TestGroupsOfOtherSizes(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := shimtest.UseGPUs(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	for r, c := range w.Comms {
		a, b := g.Memory(r, 1<<20), g.Memory(r, 1<<20)
		group := []calls.Call{message(g, c, calls.Send, 1-r, a, 6<<16), message(g, c, calls.Recv, 1-r, b, (6+r)<<16)}
		require.NoError(t, shim.Run(group))
	}
	<-w.Comms[0].FailedChan()
	if err := w.Comms[0].AsyncError(); err == nil || !strings.Contains(err.Error(), "different calls") {
		t.Error(err)
	}
	assert.NoError(t, errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)))
}

// TestAbortedGroup: streams of messages whose other ends do not come go on.
func TestAbortedGroup(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := shimtest.UseGPUs(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	c := w.Comms[0]
	for range 2 {
		group := []calls.Call{message(g, c, calls.Send, 1, g.Memory(0, relayed), relayed),
			message(g, c, calls.Recv, 1, g.Memory(0, relayed), relayed)}
		require.NoError(t, shim.Run(group))
	}
	require.NoError(t, c.Abort())
	require.NoError(t, g.SynchronizeRank(0))
}

// TestRefusedGroup has the driver refuse each call on the way: an error that says so, and no stream hangs.
func TestRefusedGroup(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	for _, method := range []string{"NewStream", "NewEvent", "Alloc", "Record", "Follow", "Await", "Store", "CopyOut",
		"CopyIn", "Copy", "Signal"} {
		t.Run(method, func(t *testing.T) {
			g := shimtest.UseGPUs(t, 2, 1)
			refused := 0
			for after := range 12 {
				c := shimtest.NewWorld(t, 2).Comms[0]
				g.Fail(method, after)
				err := shim.Run([]calls.Call{
					message(g, c, calls.Send, 1, g.Memory(0, relayed), relayed),
					message(g, c, calls.Recv, 1, g.Memory(0, relayed), relayed),
					message(g, c, calls.Send, 0, g.Memory(0, relayed), relayed),
					message(g, c, calls.Recv, 0, g.Memory(0, relayed), relayed),
				})
				g.Fail("", 0)
				if err != nil {
					refused++
				}
				if err != nil && !errors.Is(err, device.ErrDriver) {
					t.Errorf("after %d: %v", after, err)
				}
				require.NoError(t, c.Abort())
				if err := g.SynchronizeRank(0); err != nil {
					t.Errorf("after %d: %v", after, err)
				}
			}
			if refused == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

// TestSlotsAreLeftAlone checks that data arrives whole, though its two slots are reused and the peer comes late.
func TestSlotsAreLeftAlone(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	g := shimtest.UseGPUs(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	sent, got, back := bytesOn(g, 0, 0, 32<<16), g.Memory(1, 32<<16), g.Memory(0, 32<<16)
	outs := make(chan struct{}, 64)
	g.Before(func(o devicetest.Op) {
		if o.Kind == devicetest.CopyOut {
			outs <- struct{}{}
		}
	})
	group := []calls.Call{message(g, w.Comms[0], calls.Send, 1, sent, 32<<16),
		message(g, w.Comms[0], calls.Recv, 1, back, 32<<16)}
	require.NoError(t, shim.Run(group))
	for range steps.RelaySlots {
		<-outs
	}
	w.Must(func(c *shim.Comm) error {
		if c.Rank == 0 {
			return g.SynchronizeRank(0)
		}
		for _, call := range []calls.Call{message(g, c, calls.Recv, 0, got, 32<<16),
			message(g, c, calls.Send, 0, got, 32<<16)} {
			if err := shim.Run([]calls.Call{call}); err != nil {
				return err
			}
		}
		return g.SynchronizeRank(1)
	})
	g.Before(nil)
	assert.NoError(t, errors.Join(alike(g, sent, got, 32<<16), alike(g, sent, back, 32<<16)))
}
