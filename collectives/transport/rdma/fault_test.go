package rdma_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
)

// pair is two ranks on one plane of a network.
func pair(t *testing.T, o rdma.ListenOptions) (*verbstest.Network, []transport.Plane, []transport.Endpoint) {
	t.Helper()
	n := network(t)
	e := connect(t, n, 2, 1, o)
	t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
	return n, []transport.Plane{e[0].Planes()[0], e[1].Planes()[0]}, e
}

// push sends a frame from rank 0 to rank 1, number as its offset and epoch 7.
func push(t *testing.T, p transport.Plane, number int, payload []byte) int {
	t.Helper()
	taken, err := p.TrySend(&wire.Header{Dst: 1, Epoch: 7, Offset: uint64(number)}, payload)
	if err != nil {
		t.Fatalf("frame %d: %v", number, err)
	}
	return taken
}

// until calls f until it is true or fails.
func until(t *testing.T, what string, f func() (bool, error)) error {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Microsecond) {
		if ok, err := f(); ok || err != nil {
			return err
		}
	}
	t.Fatalf("%s: nothing in a minute", what)
	return nil
}

func wants(t *testing.T, err, is error, words ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Fatalf("error %v, want %v", err, is)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// TestUnanswered: requests that nobody acknowledges are an error that names ranks, plane, epoch,
// queue pair and status, at once in all that concerns the peer, and for good.
func TestUnanswered(t *testing.T) {
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

// TestFailedQueuePair: what has come before is still delivered, and the device's own code shows.
func TestFailedQueuePair(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{})
	push(t, p[0], 3, []byte("last words"))
	_ = until(t, "drain", p[0].Drained)
	if err := n.Fail(0x12, 19, 0x51); err != nil { // rank 1's
		t.Fatal(err)
	}
	h, data, err := p[1].Peek(0)
	if err != nil || h == nil || h.Offset != 3 || string(data) != "last words" {
		t.Fatalf("%v %q %v", h, data, err)
	}
	p[1].Release(0)
	err = until(t, "failure", func() (bool, error) { _, _, err := p[1].Peek(0); return false, err })
	wants(t, err, nil, "rank 1", "QP 0x12 to rank 0", "FATAL_ERR (vendor 0x51)")
}

// TestDrained: nothing is drained before it is acknowledged, whether or not it was signalled.
func TestDrained(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{Slots: 64}) // a signal every 16 requests
	for i := range 40 {
		n.Hold(true)
		push(t, p[0], i, make([]byte, 8))
		for range 3 {
			if ok, err := p[0].Drained(); ok || err != nil {
				t.Fatalf("frame %d, held back: drained %v, %v", i, ok, err)
			}
		}
		n.Hold(false)
		if err := until(t, "drain", p[0].Drained); err != nil {
			t.Fatal(err)
		}
		if h, _, err := p[1].Peek(0); h == nil || err != nil {
			t.Fatalf("frame %d is drained and not there: %v", i, err)
		}
		p[1].Release(0)
	}
}

// TestCorruptFrame: a frame whose header does not hold is refused.
func TestCorruptFrame(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{})
	n.Corrupt(1)
	push(t, p[0], 0, make([]byte, 8))
	err := until(t, "frame", func() (bool, error) { h, _, err := p[1].Peek(0); return h != nil, err })
	wants(t, err, transport.ErrCorrupt, "rank 1", "plane 0", "from rank 0", "checksum")
}

// TestCredit: as many frames as there are slots, and not one more until one is released.
func TestCredit(t *testing.T) {
	_, p, _ := pair(t, rdma.ListenOptions{Slots: 4, Payload: 1 << 10})
	frame := make([]byte, 1<<10)
	sent := 0
	for range 1000 {
		if push(t, p[0], sent, frame) != 0 {
			sent++
		}
	}
	if sent != 4 {
		t.Fatalf("%d frames taken, want 4", sent)
	}
	_ = until(t, "frame", func() (bool, error) { h, _, err := p[1].Peek(0); return h != nil, err })
	p[1].Release(0)
	if err := until(t, "credit", func() (bool, error) { return push(t, p[0], sent, frame) != 0, nil }); err != nil {
		t.Fatal(err)
	}
}

// receive takes and releases the next frame.
func receive(t *testing.T, p transport.Plane, src int) {
	t.Helper()
	if err := until(t, "frame", func() (bool, error) { h, _, err := p.Peek(src); return h != nil, err }); err != nil {
		t.Fatal(err)
	}
	p.Release(src)
}

// TestLateAcknowledgements: a credit says that a slot of the peer is free. The slot that it was
// sent from is not before the request is complete: it may have to be sent again.
func TestLateAcknowledgements(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{Slots: 4, Payload: 1 << 10})
	n.HoldAcks(0x11)
	frame := make([]byte, 1<<10) // too large to be taken at posting
	for i := range 4 {
		push(t, p[0], i, frame)
	}
	for range 4 {
		receive(t, p[1], 0)
	}
	if err := until(t, "credits", p[1].Drained); err != nil { // they have arrived
		t.Fatal(err)
	}
	for range 100 {
		if push(t, p[0], 4, frame) != 0 {
			t.Fatal("a slot is used again before its request is complete")
		}
	}
	n.HoldAcks(0)
	_ = until(t, "room", func() (bool, error) { return push(t, p[0], 4, frame) != 0, nil })
}

// TestOwedCredits: credits for which the queue has no room are sent when it has.
func TestOwedCredits(t *testing.T) {
	n, p, _ := pair(t, rdma.ListenOptions{Slots: 4, Payload: 1 << 10})
	n.HoldAcks(0x12) // of rank 1, which credits frames of rank 0
	frame := make([]byte, 8)
	sent, got := 0, 0
	for fruitless := 0; fruitless < 1000; fruitless++ {
		if push(t, p[0], sent, frame) != 0 {
			sent++
			fruitless = 0
		}
		if h, _, err := p[1].Peek(0); err != nil {
			t.Fatal(err)
		} else if h != nil {
			p[1].Release(0)
			got++
			fruitless = 0
		}
		time.Sleep(10 * time.Microsecond)
	}
	if sent <= 4 || got != sent {
		t.Fatalf("%d sent, %d received", sent, got)
	}
	n.HoldAcks(0)
	for limit := sent + 100; sent < limit; {
		_ = until(t, "room", func() (bool, error) {
			_, _, err := p[1].Peek(0) // rank 1 looks, too
			return push(t, p[0], sent, frame) != 0, err
		})
		sent++
		receive(t, p[1], 0)
	}
}

// TestListenErrors: what cannot work is refused with the field.
func TestListenErrors(t *testing.T) {
	n := network(t)
	d, down := n.Add("mem"), n.Add("down")
	verbstest.SetPort(down, rdma.PortInfo{State: "DOWN"})
	bare := n.Add("bare")
	verbstest.SetPort(bare, rdma.PortInfo{Active: true, MTU: 1024, Ethernet: true}, rdma.Entry{})
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
		{rdma.ListenOptions{Ranks: 2, Planes: at(bare, 1, -1)}, "port 1 has no GID"},
		{rdma.ListenOptions{Ranks: 2, Planes: at(bare, 1, 0)}, "GID 0 is not in use"},
	} {
		_, err := rdma.Listen(c.o)
		wants(t, err, nil, c.want)
	}
}

// TestSoftFrames: on soft-RoCE a frame is one packet; elsewhere it is larger.
func TestSoftFrames(t *testing.T) {
	n := network(t)
	entry := rdma.Entry{GID: rdma.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, Type: rdma.RoCEv2}
	at := func(mtu int, soft bool) rdma.PlaneOptions {
		d := n.Add("mem")
		verbstest.SetPort(d, rdma.PortInfo{Active: true, MTU: mtu, Ethernet: true, Soft: soft}, entry)
		return rdma.PlaneOptions{Device: d, Port: 1, GIDIndex: -1}
	}
	for _, c := range []struct {
		planes []rdma.PlaneOptions
		most   int // bytes of header and payload
	}{
		{[]rdma.PlaneOptions{at(4096, true)}, 4096},
		{[]rdma.PlaneOptions{at(4096, true), at(1024, true), at(512, false)}, 1024},
		{[]rdma.PlaneOptions{at(4096, false)}, 64<<10 + wire.HeaderSize},
	} {
		l, err := rdma.Listen(rdma.ListenOptions{Ranks: 2, Planes: c.planes})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Addrs().Payload + wire.HeaderSize; got != c.most {
			t.Errorf("frames of %d bytes, want %d", got, c.most)
		}
		transporttest.Close(t, l)
	}
}

// TestConnectErrors: ends that do not fit are refused, and stay the listener's.
func TestConnectErrors(t *testing.T) {
	n := network(t)
	listen := func(rank, slots int) *rdma.Listener {
		l, err := rdma.Listen(rdma.ListenOptions{Rank: rank, Ranks: 2, Slots: slots, Planes: []rdma.PlaneOptions{{n.Add("mem"), 1, -1}}})
		if err != nil {
			t.Fatal(err)
		}
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

// TestChooseGID: an IPv4 address over RoCEv2 before all else.
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
		{"v4", true, []rdma.Entry{{local, rdma.RoCEv1}, {local, rdma.RoCEv2}, {v4, rdma.RoCEv1}, {v4, rdma.RoCEv2}, {global, rdma.RoCEv2}}, 3},
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
