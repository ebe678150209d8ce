package rendezvous_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/messages"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/rendezvous"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/internal/assert"
	"lightpath/internal/require"
)

// rank is an endpoint with registered memory.
type rank struct {
	*rendezvous.Endpoint
	mem    []byte
	region messages.Region
}

const room = 1 << 20

// memory returns a memory file, which serves as a dma-buf, and its mapping.
func memory(t testing.TB) (fd int, mem []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("rendezvous", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, room)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return fd, mem
}

// connect returns the ranks of a communicator. Each rank has its own devices.
func connect(t testing.TB, ranks, planes int) (*verbstest.Network, []*rank) {
	t.Helper()
	n, all, _ := connectOver(t, ranks, planes, false)
	return n, all
}

// connectOver is like connect, for planes with or without circuits. It also returns the addresses.
func connectOver(t testing.TB, ranks, planes int, circuits bool) (*verbstest.Network, []*rank, []rendezvous.Addrs) {
	t.Helper()
	n := verbstest.New(uint64(ranks*10 + planes))
	all, addrs := make([]*rank, ranks), make([]rendezvous.Addrs, ranks)
	for r := range all {
		o := rendezvous.Options{Rank: r, Ranks: ranks, Circuits: circuits}
		for j := range planes {
			d := n.Add(fmt.Sprintf("mem%d.%d", r, j))
			o.Planes = append(o.Planes, rdma.PlaneOptions{Device: d, Port: 1, GIDIndex: -1})
		}
		e, a, err := rendezvous.Listen(o)
		require.NoError(t, err)
		fd, mem := memory(t)
		region, err := e.Register(fd, 0, unsafe.Pointer(&mem[0]), room)
		_ = unix.Close(fd)
		require.NoError(t, err)
		all[r], addrs[r] = &rank{e, mem, region}, a
	}
	for _, r := range all {
		require.NoError(t, r.Connect(addrs))
	}
	t.Cleanup(func() {
		for _, r := range all {
			assert.NoError(t, r.Close())
		}
		assert.NoError(t, n.Close())
	})
	return n, all, addrs
}

// TestCompletionWaitsForOffer checks that over circuits a received message completes only after its offer is
// acknowledged.
func TestCompletionWaitsForOffer(t *testing.T) {
	n, all, addrs := connectOver(t, 2, 1, true)
	const count = 3
	groups := make([]messages.Group, 2)
	for i := range count {
		for r := range all {
			groups[r].Transfers = append(groups[r].Transfers, all[r].transfer(0, 1-r, r == 0, 5000*i, 5000, 1))
		}
	}
	n.HoldAcks(addrs[1][0].QPs[0])
	for r := range all {
		require.NoError(t, all[r].Begin(&groups[r]))
	}
	for completed := 0; completed == 0; { // at the sender
		for r := range all {
			done, err := all[r].Poll()
			require.NoError(t, err)
			if completed += len(done); r == 1 && len(done) > 0 {
				t.Fatal("the receiver's group completed with offers in flight")
			}
		}
	}
	if done, err := all[1].Poll(); err != nil || len(done) > 0 { // all messages have arrived
		t.Fatalf("%d groups completed at the receiver, %v", len(done), err)
	}
	if w, some := all[1].Waiting(); !some || w.Send || w.Number != 0 || w.Bytes != 5000 {
		t.Errorf("Waiting: %+v, %v", w, some)
	}
	n.HoldAcks(0)
	require.NoError(t, drive(t, all, 1))
}

// transfer returns a transfer at an offset of the rank's memory.
func (r *rank) transfer(plane, peer int, send bool, off, size int, tag uint32) messages.Transfer {
	return messages.Transfer{
		Plane: plane, Peer: peer, Send: send, Tag: tag,
		At: unsafe.Pointer(&r.mem[off]), Bytes: int64(size), Region: r.region,
	}
}

// drive polls and waits for all ranks in turn, until the given number of groups has completed or a rank returns an
// error.
func drive(t testing.TB, all []*rank, groups int) error {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); groups > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d groups have not completed", groups)
		}
		for _, r := range all {
			armed := r.Arm()
			over, err := r.Poll()
			if err != nil {
				return err
			}
			groups -= len(over)
			r.Wait(armed, 50*time.Microsecond)
		}
	}
	return nil
}

// TestMessages sends random groups between all pairs of ranks, with more messages than a window. Each message must
// arrive in its place, and no other byte may change.
func TestMessages(t *testing.T) {
	for _, c := range [][2]int{{2, 1}, {3, 2}, {4, 1}} {
		t.Run(fmt.Sprintf("%dx%d", c[0], c[1]), func(t *testing.T) {
			_, all := connect(t, c[0], c[1])
			rng := rand.New(rand.NewPCG(uint64(c[0]), 3))
			for range 4 {
				exchange(t, rng, all, c[1])
			}
		})
	}
}

// exchange sends one group of random messages per rank and checks the memory of all ranks.
func exchange(t *testing.T, rng *rand.Rand, all []*rank, planes int) {
	groups, used := make([]messages.Group, len(all)), make([]int, len(all))
	want := make([][]byte, len(all))
	for r := range all {
		for i := range all[r].mem {
			all[r].mem[i] = byte(rng.Uint32())
		}
		want[r] = bytes.Clone(all[r].mem)
	}
	take := func(r, size int) int {
		at := used[r] + rng.IntN(9)
		used[r] = at + size
		return at
	}
	total := int64(0)
	for i := range 60 {
		from := rng.IntN(len(all))
		to := (from + 1 + rng.IntN(len(all)-1)) % len(all)
		size, plane := []int{0, 1, 63, 4096, 5000}[rng.IntN(5)], rng.IntN(planes)
		at, src := take(to, size), take(from, size)
		copy(want[to][at:at+size], all[from].mem[src:src+size])
		groups[from].Transfers = append(groups[from].Transfers, all[from].transfer(plane, to, true, src, size, uint32(i)))
		groups[to].Transfers = append(groups[to].Transfers, all[to].transfer(plane, from, false, at, size, uint32(i)))
		total += int64(size)
	}
	before := int64(0)
	for r := range all {
		before += all[r].Traffic()
		require.NoError(t, all[r].Begin(&groups[r]))
	}
	require.NoError(t, drive(t, all, len(all)))
	for r := range all {
		before -= all[r].Traffic()
		if !bytes.Equal(all[r].mem, want[r]) {
			t.Fatalf("rank %d has wrong bytes", r)
		}
		if w, some := all[r].Waiting(); some {
			t.Errorf("rank %d: Waiting returns %+v", r, w)
		}
	}
	if before != -total {
		t.Errorf("Traffic counts %d bytes, want %d", -before, total)
	}
}

// TestRepeatedGroupDoesNotAllocate repeats a group after its first rounds.
func TestRepeatedGroupDoesNotAllocate(t *testing.T) {
	_, all := connect(t, 2, 2)
	groups := make([]messages.Group, 2)
	for i := range 40 {
		for r := range all {
			send := i%3 == 0 == (r == 0)
			groups[r].Transfers = append(groups[r].Transfers, all[r].transfer(i%2, 1-r, send, 5000*i, 5000, 1))
		}
	}
	round := func() {
		for r := range all {
			require.NoError(t, all[r].Begin(&groups[r]))
		}
		require.NoError(t, drive(t, all, 2))
	}
	round()
	round()
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations per group", n)
	}
}

// TestMismatch checks that a message with different sizes or calls at its ranks is an error, and that the sender writes
// no byte of it.
func TestMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		tag  uint32
		says string
	}{
		"size": {4097, 1, "4097 bytes here and 4096 at rank 0"},
		"call": {4096, 2, "call 0x2 here and to call 0x1 at rank 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, all := connect(t, 2, 1)
			was := bytes.Clone(all[0].mem)
			groups := []messages.Group{
				{Transfers: []messages.Transfer{all[0].transfer(0, 1, false, 0, 4096, 1)}},
				{Transfers: []messages.Transfer{all[1].transfer(0, 0, true, 0, c.size, c.tag)}},
			}
			for i := range all[1].mem {
				all[1].mem[i] = 0xff
			}
			for r := range all {
				require.NoError(t, all[r].Begin(&groups[r]))
			}
			err := drive(t, all, 1)
			if !errors.Is(err, messages.ErrMismatch) || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), "rank 1, plane 0, with rank 0") {
				t.Error(err)
			}
			if !bytes.Equal(was, all[0].mem) {
				t.Error("the sender has written bytes")
			}
		})
	}
}

// TestFaults injects faults of the device and of the network. The error must name the plane.
func TestFaults(t *testing.T) {
	lose := func(n *verbstest.Network) { n.Drop(func(uint32, uint32, uint64) bool { return true }) }
	for name, c := range map[string]struct {
		inject func(n *verbstest.Network)
		is     error
		says   string
	}{
		"no answer":   {lose, transport.ErrPeerLost, "RETRY_EXC_ERR"},
		"bad offer":   {func(n *verbstest.Network) { n.Corrupt(1) }, transport.ErrCorrupt, "offer 0"},
		"short offer": {func(n *verbstest.Network) { n.Truncate(7) }, transport.ErrCorrupt, "of 7 bytes"},
		"device lost": {func(n *verbstest.Network) {
			d, _ := n.Open("mem0.0")
			verbstest.RaiseEvent(d, rdma.Event{Kind: rdma.DeviceFatal})
		}, rdma.ErrDevice, "rank 0, plane 0"},
	} {
		t.Run(name, func(t *testing.T) {
			n, all := connect(t, 2, 1)
			c.inject(n)
			groups := []messages.Group{
				{Transfers: []messages.Transfer{all[0].transfer(0, 1, false, 0, 4096, 1)}},
				{Transfers: []messages.Transfer{all[1].transfer(0, 0, true, 0, 4096, 1)}},
			}
			for r := range all {
				require.NoError(t, all[r].Begin(&groups[r]))
			}
			err := drive(t, all, 3) // the groups never complete
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "plane 0") {
				t.Error(err)
			}
		})
	}
}

// TestBeginErrors checks that Begin rejects invalid transfers and begins none of their group.
func TestBeginErrors(t *testing.T) {
	_, all := connect(t, 2, 1)
	good := all[0].transfer(0, 1, true, 0, 100, 1)
	for name, change := range map[string]func(m *messages.Transfer){
		"plane":     func(m *messages.Transfer) { m.Plane = 1 },
		"itself":    func(m *messages.Transfer) { m.Peer = 0 },
		"beyond":    func(m *messages.Transfer) { m.At = unsafe.Add(m.At, room-99) },
		"before":    func(m *messages.Transfer) { m.At = unsafe.Add(m.At, -1) },
		"no region": func(m *messages.Transfer) { m.Region = nil },
		"negative":  func(m *messages.Transfer) { m.Bytes = -1 },
	} {
		bad := good
		change(&bad)
		if err := all[0].Begin(&messages.Group{Transfers: []messages.Transfer{good, bad}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if w, some := all[0].Waiting(); some {
		t.Errorf("a message has begun: %+v", w)
	}
}
