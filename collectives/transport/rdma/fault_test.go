package rdma_test

import (
	"errors"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/assert"
	"lightpath/internal/require"
)

// pair returns two ranks on one plane of a network.
func pair(t *testing.T, o rdma.ListenOptions) (*verbstest.Network, []transport.Plane, []transport.Endpoint) {
	t.Helper()
	n := network(t)
	e := connect(t, n, 2, 1, o)
	t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
	return n, []transport.Plane{e[0].Planes()[0], e[1].Planes()[0]}, e
}

// push sends a frame of epoch 7 from rank 0 to rank 1, with number as its offset. It returns the accepted bytes.
func push(t *testing.T, p transport.Plane, number int, payload []byte) int {
	t.Helper()
	taken, err := p.TrySend(&wire.Header{Dst: 1, Epoch: 7, Offset: uint64(number)}, payload)
	if err != nil {
		t.Fatalf("frame %d: %v", number, err)
	}
	return taken
}

// until calls f until it returns true or an error.
func until(t *testing.T, name string, f func() (bool, error)) error {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Microsecond) {
		if ok, err := f(); ok || err != nil {
			return err
		}
	}
	t.Fatalf("%s: no result in a minute", name)
	return nil
}

func wants(t *testing.T, err, is error, words ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Fatalf("error %v, want %v", err, is)
	}
	assert.Contains(t, err.Error(), words...)
}

// TestUnacknowledgedRequestsAreAnError checks that requests without an acknowledgement are an error. It names ranks,
// plane, epoch, queue pair and status, and all later calls for the peer return it.
func TestUnacknowledgedRequestsAreAnError(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{})
	n.Drop(func(_, _ uint32, _ uint64) bool { return true })
	push(t, p[0], 0, make([]byte, 8))
	err := until(t, "drain", p[0].Drained)
	wants(t, err, transport.ErrPeerLost, "rank 0", "plane 0", "epoch 7", "to rank 1", "QP 0x11", "RETRY_EXC_ERR")
	var qe *rdma.QPError
	if !errors.As(err, &qe) || qe.Status != rdma.RetryExc || qe.Peer != 1 {
		t.Errorf("%#v", err)
	}
	n.Drop(nil)
	_, err = p[0].TrySend(&wire.Header{Dst: 1}, []byte("x"))
	wants(t, err, transport.ErrPeerLost, "RETRY_EXC_ERR")
	_, _, err = p[0].Peek(1)
	wants(t, err, transport.ErrPeerLost, "RETRY_EXC_ERR")
}

// TestFailedQueuePair checks that Peek returns the frames before a failure, then an error with the vendor's code.
func TestFailedQueuePair(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{})
	push(t, p[0], 3, []byte("last words"))
	_ = until(t, "drain", p[0].Drained)
	require.NoError(t, n.Fail(0x12, 19, 0x51)) // of rank 1
	h, data, err := p[1].Peek(0)
	if err != nil || h == nil || h.Offset != 3 || string(data) != "last words" {
		t.Fatalf("%v %q %v", h, data, err)
	}
	p[1].Release(0)
	err = until(t, "failure", func() (bool, error) { _, _, err := p[1].Peek(0); return false, err })
	wants(t, err, nil, "rank 1", "QP 0x12 to rank 0", "FATAL_ERR (vendor 0x51)")
}

// TestDrainedWaitsForAcknowledgement checks that a plane is not drained before its last request is acknowledged,
// whether or not that request was signalled.
func TestDrainedWaitsForAcknowledgement(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{Slots: 64}) // every 16th request is signalled
	for i := range 40 {
		n.Hold(true)
		push(t, p[0], i, make([]byte, 8))
		for range 3 {
			if ok, err := p[0].Drained(); ok || err != nil {
				t.Fatalf("frame %d in flight: drained %v, %v", i, ok, err)
			}
		}
		n.Hold(false)
		require.NoError(t, until(t, "drain", p[0].Drained))
		if h, _, err := p[1].Peek(0); h == nil || err != nil {
			t.Fatalf("frame %d has not arrived after Drained: %v", i, err)
		}
		p[1].Release(0)
	}
}

// TestCorruptFrame checks that a frame with a damaged header is an error.
func TestCorruptFrame(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{})
	n.Corrupt(1)
	push(t, p[0], 0, make([]byte, 8))
	err := until(t, "frame", func() (bool, error) { h, _, err := p[1].Peek(0); return h != nil, err })
	wants(t, err, transport.ErrCorrupt, "rank 1", "plane 0", "from rank 0", "checksum")
}

// TestCreditIsNotExceeded checks that TrySend accepts as many frames as there are slots, and one more per release.
func TestCreditIsNotExceeded(t *testing.T) {
	_, p, _ := pair(t, rdma.ListenOptions{Slots: 4, Payload: 1 << 10})
	frame := make([]byte, 1<<10)
	sent := 0
	for range 1000 {
		if push(t, p[0], sent, frame) != 0 {
			sent++
		}
	}
	if sent != 4 {
		t.Fatalf("%d frames accepted, want 4", sent)
	}
	_ = until(t, "frame", func() (bool, error) { h, _, err := p[1].Peek(0); return h != nil, err })
	p[1].Release(0)
	require.NoError(t, until(t, "credit", func() (bool, error) { return push(t, p[0], sent, frame) != 0, nil }))
}

// receive waits for the next frame and releases it.
func receive(t *testing.T, p transport.Plane, src int) {
	t.Helper()
	require.NoError(t, until(t, "frame", func() (bool, error) { h, _, err := p.Peek(src); return h != nil, err }))
	p.Release(src)
}

// TestStagingSlotWaitsForCompletion checks that a credit alone does not free a staging slot. The device may have to
// retransmit from it until the request is complete.
func TestStagingSlotWaitsForCompletion(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{Slots: 4, Payload: 1 << 10})
	n.HoldAcks(0x11)
	frame := make([]byte, 1<<10) // too large for an inlined request
	for i := range 4 {
		push(t, p[0], i, frame)
	}
	for range 4 {
		receive(t, p[1], 0)
	}
	require.NoError(t, until(t, "credits", p[1].Drained)) // the credits have arrived
	for range 100 {
		if push(t, p[0], 4, frame) != 0 {
			t.Fatal("a staging slot was reused before its request was complete")
		}
	}
	n.HoldAcks(0)
	_ = until(t, "room", func() (bool, error) { return push(t, p[0], 4, frame) != 0, nil })
}

// TestPendingCredits fills the send queue of rank 1, which then has no room for credits. It must send them when its
// requests are acknowledged.
func TestPendingCredits(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{Slots: 4, Payload: 1 << 10})
	n.HoldAcks(0x12) // of rank 1
	frame := make([]byte, 8)
	sent, got := 0, 0
	for idle := 0; idle < 100; idle++ {
		if push(t, p[0], sent, frame) != 0 {
			sent++
			idle = 0
		}
		if h, _, err := p[1].Peek(0); err != nil {
			t.Fatal(err)
		} else if h != nil {
			p[1].Release(0)
			got++
			idle = 0
		}
		time.Sleep(10 * time.Microsecond)
	}
	if sent <= 4 || got != sent {
		t.Fatalf("%d sent, %d received", sent, got)
	}
	n.HoldAcks(0)
	for limit := sent + 100; sent < limit; {
		_ = until(t, "room", func() (bool, error) {
			_, _, err := p[1].Peek(0) // lets rank 1 make progress
			return push(t, p[0], sent, frame) != 0, err
		})
		sent++
		receive(t, p[1], 0)
	}
}

// TestListenErrors checks that the error for bad options names the field.
func TestListenErrors(t *testing.T) {
	n := network(t)
	d, down := n.Add("mem"), n.Add("down")
	verbstest.SetPort(down, rdma.PortInfo{State: "DOWN"})
	noGID := n.Add("no-gid")
	verbstest.SetPort(noGID, rdma.PortInfo{Active: true, MTU: 1024, Ethernet: true}, rdma.Entry{})
	at := func(d rdma.Device, port, gid int) []rdma.PlaneOptions { return []rdma.PlaneOptions{{d, port, gid}} }
	for _, c := range []struct {
		o    rdma.ListenOptions
		want string
	}{
		{rdma.ListenOptions{Ranks: 0}, "rank 0 of 0"},
		{rdma.ListenOptions{Ranks: 2, Rank: 2}, "rank 2 of 2"},
		{rdma.ListenOptions{Ranks: 2}, "no planes"},
		{rdma.ListenOptions{Ranks: 2, Planes: at(d, 1, -1), Slots: 3}, "slots = 3"},
		{rdma.ListenOptions{Ranks: 2, Planes: at(d, 1, -1), Payload: 1025}, "payload = 1025"},
		{rdma.ListenOptions{Ranks: 2, Planes: at(d, 2, -1)}, "no port 2"},
		{rdma.ListenOptions{Ranks: 2, Planes: at(d, 1, 5)}, "no GID 5"},
		{rdma.ListenOptions{Ranks: 2, Planes: at(down, 1, -1)}, "port 1 is DOWN"},
		{rdma.ListenOptions{Ranks: 2, Planes: at(noGID, 1, -1)}, "port 1 has no GID"},
		{rdma.ListenOptions{Ranks: 2, Planes: at(noGID, 1, 0)}, "GID 0 is not in use"},
	} {
		_, err := rdma.Listen(c.o)
		wants(t, err, nil, c.want)
	}
}

// TestFrameSizeOfSoftRoCE checks that a frame is one packet with soft-RoCE, and larger otherwise.
func TestFrameSizeOfSoftRoCE(t *testing.T) {
	n := network(t)
	entry := rdma.Entry{GID: rdma.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, Type: rdma.RoCEv2}
	at := func(mtu int, soft bool) rdma.PlaneOptions {
		d := n.Add("mem")
		verbstest.SetPort(d, rdma.PortInfo{Active: true, MTU: mtu, Ethernet: true, Soft: soft}, entry)
		return rdma.PlaneOptions{Device: d, Port: 1, GIDIndex: -1}
	}
	for _, c := range []struct {
		planes []rdma.PlaneOptions
		size   int // of header and payload in bytes
	}{
		{[]rdma.PlaneOptions{at(4096, true)}, 4096},
		{[]rdma.PlaneOptions{at(4096, true), at(1024, true), at(512, false)}, 1024},
		{[]rdma.PlaneOptions{at(4096, false)}, 64<<10 + wire.HeaderSize},
	} {
		l, err := rdma.Listen(rdma.ListenOptions{Ranks: 2, Planes: c.planes})
		require.NoError(t, err)
		if got := l.Addrs().Payload + wire.HeaderSize; got != c.size {
			t.Errorf("frames of %d bytes, want %d", got, c.size)
		}
		transporttest.Close(t, l)
	}
}

// TestConnectErrors checks that Connect rejects incompatible ranks, and that the listener still owns its queue pairs.
func TestConnectErrors(t *testing.T) {
	n := network(t)
	listen := func(rank, slots int) *rdma.Listener {
		planes := []rdma.PlaneOptions{{n.Add("mem"), 1, -1}}
		l, err := rdma.Listen(rdma.ListenOptions{Rank: rank, Ranks: 2, Slots: slots, Planes: planes})
		require.NoError(t, err)
		return l
	}
	a, b := listen(0, 4), listen(1, 8)
	defer transporttest.Close(t, a, b)
	_, err := rdma.Connect(a, rdma.Options{Addrs: []rdma.Addrs{a.Addrs()}})
	wants(t, err, nil, "addresses of 1 ranks")
	_, err = rdma.Connect(a, rdma.Options{Addrs: []rdma.Addrs{a.Addrs(), b.Addrs()}})
	wants(t, err, nil, "rank 1 has 1 planes of 8 slots", "rank 0 has 1 of 4")
	transporttest.Close(t, b)
	_, err = rdma.Connect(b, rdma.Options{})
	wants(t, err, transport.ErrClosed)
}

// TestChooseGID checks the order of preference.
func TestChooseGID(t *testing.T) {
	v4 := rdma.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}
	local, global := rdma.GID{0xfe, 0x80, 15: 1}, rdma.GID{0x20, 1, 15: 1}
	d := network(t).Add("mem")
	for _, c := range []struct {
		name     string
		ethernet bool
		table    []rdma.Entry
		want     int
	}{
		{"v4", true, []rdma.Entry{
			{local, rdma.RoCEv1}, {local, rdma.RoCEv2}, {v4, rdma.RoCEv1}, {v4, rdma.RoCEv2}, {global, rdma.RoCEv2},
		}, 3},
		{"global", true, []rdma.Entry{{local, rdma.RoCEv2}, {}, {global, rdma.RoCEv2}}, 2},
		{"link local", true, []rdma.Entry{{local, rdma.RoCEv1}, {local, rdma.RoCEv2}}, 1},
		{"v1", true, []rdma.Entry{{}, {local, rdma.RoCEv1}}, 1},
		{"infiniband", false, []rdma.Entry{{local, rdma.InfiniBand}, {global, rdma.InfiniBand}}, 0},
	} {
		verbstest.SetPort(d, rdma.PortInfo{Active: true, Ethernet: c.ethernet}, c.table...)
		if got, err := rdma.ChooseGID(d, 1); got != c.want || err != nil {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}
