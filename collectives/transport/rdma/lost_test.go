package rdma_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
	"lightpath/plans/circuit"
)

// lossy has no acknowledgements and a short loss timeout of half a second.
var lossy = rdma.ListenOptions{
	Control: "127.0.0.1:0", Service: rdma.Service{Timeout: 17, Retries: 1}, Unacknowledged: true, Slots: 8,
}

// waitFor is like until, but waits on the endpoint between calls, as package exec does.
func waitFor(t *testing.T, name string, e transport.Endpoint, f func() (bool, error)) error {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; {
		armed := e.Arm()
		if ok, err := f(); ok || err != nil {
			return err
		}
		e.Wait(armed, time.Second)
	}
	t.Fatalf("%s: no result in a minute", name)
	return nil
}

func peeks(e transport.Endpoint, src int) func() (bool, error) {
	return func() (bool, error) { h, _, err := e.Planes()[0].Peek(src); return h != nil, err }
}

// TestLostFrame loses two frames before another one, without acknowledgements. The receiver must return the frames
// before them, and then an error that names the ranks, the plane, the epoch and the frames.
func TestLostFrame(t *testing.T) {
	n, p, e := pair(t, lossy)
	n.Drop(func(src, _ uint32, sent uint64) bool { return src == 0x11 && (sent == 1 || sent == 2) })
	for i := range 4 {
		push(t, p[0], i, make([]byte, 8))
	}
	require.NoError(t, waitFor(t, "first frame", e[1], peeks(e[1], 0)))
	if h, data, err := p[1].Peek(0); err != nil || h.Offset != 0 || len(data) != 8 {
		t.Fatalf("%+v, %d bytes, %v", h, len(data), err)
	}
	p[1].Release(0)
	err := waitFor(t, "loss", e[1], peeks(e[1], 0))
	wants(t, err, transport.ErrDark, "rank 1, plane 0, epoch 7", "frames 1 to 2 of rank 0", "at rank 1")
}

// TestLostLastFrame loses the last frame. The sender must return the error when it drains, the receiver when it waits.
func TestLostLastFrame(t *testing.T) {
	t.Parallel()
	for _, waiting := range []string{"sender", "receiver"} {
		t.Run(waiting, func(t *testing.T) {
			t.Parallel() // waits for the loss timeout
			n, p, e := pair(t, lossy)
			push(t, p[0], 0, make([]byte, 8))
			receive(t, p[1], 0)
			require.NoError(t, waitFor(t, "drain", e[0], p[0].Drained))
			n.Drop(func(src, _ uint32, _ uint64) bool { return src == 0x11 })
			push(t, p[0], 1, make([]byte, 1<<10))
			if waiting == "sender" {
				err := waitFor(t, "loss", e[0], p[0].Drained)
				wants(t, err, transport.ErrDark, "rank 0, plane 0, epoch 7", "frames 1 to 1 of rank 0", "at rank 1")
				return
			}
			err := waitFor(t, "loss", e[1], peeks(e[1], 0))
			wants(t, err, transport.ErrDark, "rank 1, plane 0, epoch 7", "frames 1 to 1 of rank 0", "at rank 1")
		})
	}
}

// TestEveryLossIsAnError loses each frame of an exchange in turn. One of the ranks must return ErrDark, and the
// receiver must return no frame after the lost one.
func TestEveryLossIsAnError(t *testing.T) {
	t.Parallel()
	const frames = 20
	for lost := range uint64(frames) {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel() // the last ones wait for the loss timeout
			n, p, e := pair(t, lossy)
			n.Drop(func(src, _ uint32, sent uint64) bool { return src == 0x11 && sent == lost })
			sent, got := 0, 0
			err := waitFor(t, "loss", e[1], func() (bool, error) {
				if sent < frames {
					taken, err := p[0].TrySend(&wire.Header{Dst: 1, Epoch: 7, Offset: uint64(sent)}, make([]byte, 8))
					if err != nil {
						return false, err
					}
					sent += min(taken, 1)
				}
				h, _, err := p[1].Peek(0)
				if h != nil {
					if h.Offset != uint64(got) {
						t.Fatalf("frame %d, want %d", h.Offset, got)
					}
					p[1].Release(0)
					got++
				}
				return got == frames, err
			})
			if !errors.Is(err, transport.ErrDark) || uint64(got) > lost {
				t.Errorf("%d frames received, %v", got, err)
			}
		})
	}
}

// TestPauseIsNoLoss checks that a frame is not lost because no message reports its arrival. The receiver reports
// several frames together, and may not look for long. The sender, which waits for another rank, does not ask.
func TestPauseIsNoLoss(t *testing.T) {
	o := lossy
	o.Timeout = 0 // the least loss timeout
	e := connect(t, network(t), 3, 1, o)
	t.Cleanup(func() { transporttest.Close(t, e[0], e[1], e[2]) })
	p, to := e[0].Planes()[0], e[1].Planes()[0]
	pause := func() {
		for range 4 { // longer than the time between two checks
			armed := e[0].Arm()
			_, _, err := p.Peek(2)
			require.NoError(t, err)
			e[0].Wait(armed, 20*time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
	}
	push(t, p, 0, make([]byte, 8))
	receive(t, to, 0)
	pause()
	pause()
	push(t, p, 1, make([]byte, 8))
	push(t, p, 2, make([]byte, 8))
	require.NoError(t, waitFor(t, "drain", e[0], p.Drained))
	pause()                        // asks once more
	push(t, p, 3, make([]byte, 8)) // the receiver does not look before it has released the frames before
	pause()
	receive(t, to, 0)
	receive(t, to, 0)
	pause()
	push(t, p, 4, make([]byte, 8))
}

// TestDrainedWaitsForConfirmation checks planes without acknowledgements. A plane is not drained before the receiver
// has confirmed all frames, although their requests are complete. The receiver confirms without calling Peek.
func TestDrainedWaitsForConfirmation(t *testing.T) {
	n, p, e := pair(t, unacknowledged)
	n.HoldAcks(0x11)
	for i := range 3 {
		push(t, p[0], i, make([]byte, 1<<10))
	}
	for range 20 {
		if ok, err := p[0].Drained(); ok || err != nil {
			t.Fatalf("with frames on the wire: drained %v, %v", ok, err)
		}
		time.Sleep(100 * time.Microsecond)
	}
	n.HoldAcks(0)
	require.NoError(t, waitFor(t, "drain", e[0], p[0].Drained))
	for range 3 {
		receive(t, p[1], 0)
	}
}

// TestLostCountsAreRequested loses all counts at first. The sender must not exceed its credit, and must continue once
// its requests are answered.
func TestLostCountsAreRequested(t *testing.T) {
	for _, o := range []rdma.ListenOptions{outOfBand, unacknowledged} {
		n := network(t)
		o.Slots = 2
		relay := newRelay(t)
		useRelay := func(r int, addrs []rdma.Addrs) []rdma.Addrs {
			known := slices.Clone(addrs)
			known[1-r].Control = relay.between(r, addrs)
			return known
		}
		e := connectWith(t, each([]rdma.Device{n.Add("a"), n.Add("b")}), o, useRelay)
		t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
		p := []transport.Plane{e[0].Planes()[0], e[1].Planes()[0]}
		for i := range 2 {
			push(t, p[0], i, make([]byte, 8))
			receive(t, p[1], 0)
		}
		for range 100 {
			if push(t, p[0], 2, make([]byte, 8)) != 0 {
				t.Fatal("accepted without credit")
			}
		}
		relay.open()
		pushed := func() (bool, error) { return push(t, p[0], 2, make([]byte, 8)) > 0, nil }
		require.NoError(t, waitFor(t, "credit", e[0], pushed))
	}
}

// relay drops messages between two ranks until it is open, then relays them.
type relay struct {
	sockets [2]*net.UDPConn // by sender
	isOpen  atomic.Bool
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	r := &relay{}
	for i := range r.sockets {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		r.sockets[i] = c
	}
	return r
}

func (r *relay) open() { r.isOpen.Store(true) }

// between starts to relay the messages of rank and returns the address to which rank sends them.
func (r *relay) between(rank int, addrs []rdma.Addrs) netip.AddrPort {
	in, out, to := r.sockets[rank], r.sockets[1-rank], addrs[1-rank].Control
	go func() {
		var b [4096]byte
		for {
			n, _, err := in.ReadFromUDPAddrPort(b[:])
			if err != nil {
				return
			}
			if r.isOpen.Load() {
				_, _ = out.WriteToUDPAddrPort(b[:n], to)
			}
		}
	}()
	at := in.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// each returns one device per rank.
func each(devices []rdma.Device) (by [][]rdma.Device) {
	for _, d := range devices {
		by = append(by, []rdma.Device{d})
	}
	return by
}

// TestCircuitsMoveAfterDrain moves circuits after all ranks have drained. No frame may be lost, with acknowledgements
// on duplex circuits and without them on simplex circuits.
func TestCircuitsMoveAfterDrain(t *testing.T) {
	for _, c := range []struct {
		name string
		o    rdma.ListenOptions
		maps []circuit.Permutation
	}{
		{"duplex", outOfBand, []circuit.Permutation{{1, 0, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}}},
		{"simplex", unacknowledged, []circuit.Permutation{{1, 2, 3, 0}, {2, 3, 0, 1}, {3, 0, 1, 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const ranks = 4
			n := network(t)
			var ports []rdma.Device
			for range ranks {
				ports = append(ports, n.Add("port"))
			}
			x := n.Cross(ports...)
			e := connectWith(t, each(ports), c.o, nil)
			t.Cleanup(func() {
				for _, e := range e {
					transporttest.Close(t, e)
				}
			})
			for round := range 12 {
				to := c.maps[round%len(c.maps)]
				x.Set(to)
				h := wire.Header{Epoch: uint32(round), Offset: uint64(8 * round)}
				for r := range ranks {
					h.Src, h.Dst = uint16(r), uint16(to[r])
					if k, err := e[r].Planes()[0].TrySend(&h, make([]byte, 100<<10)); k == 0 || err != nil {
						t.Fatalf("round %d: %d, %v", round, k, err)
					}
				}
				for r := range ranks {
					if err := waitFor(t, "drain", e[r], e[r].Planes()[0].Drained); err != nil {
						t.Fatalf("round %d: rank %d: %v", round, r, err)
					}
				}
				x.Set(circuit.AllDark(ranks)) // the receivers read and release the frames while the plane is dark
				for r := range ranks {
					p := e[to[r]].Planes()[0]
					for got := 0; got < 100<<10; {
						require.NoError(t, waitFor(t, "frame", e[to[r]], peeks(e[to[r]], r)))
						h, data, _ := p.Peek(r)
						if h.Epoch != uint32(round) {
							t.Fatalf("frame of epoch %d in round %d", h.Epoch, round)
						}
						got += len(data)
						p.Release(r)
					}
				}
			}
			if x.Lost() != 0 {
				t.Errorf("%d requests lost", x.Lost())
			}
		})
	}
}

// TestMoveWithoutDrainIsAnError moves circuits while a frame is in flight. The sender must return ErrDark.
func TestMoveWithoutDrainIsAnError(t *testing.T) {
	t.Parallel() // waits for the loss timeout
	n := network(t)
	ports := []rdma.Device{n.Add("port"), n.Add("port"), n.Add("port")}
	x := n.Cross(ports...)
	e := connectWith(t, each(ports), lossy, nil)
	t.Cleanup(func() { transporttest.Close(t, e[0], e[1], e[2]) })
	x.Set(circuit.Permutation{1, 2, 0})
	n.HoldAcks(0x11) // to rank 1
	push(t, e[0].Planes()[0], 0, make([]byte, 8))
	x.Set(circuit.Permutation{2, 0, 1})
	n.HoldAcks(0)
	err := waitFor(t, "loss", e[0], e[0].Planes()[0].Drained)
	wants(t, err, transport.ErrDark, "rank 0, plane 0, epoch 7", "at rank 1")
	if x.Lost() != 1 {
		t.Errorf("%d requests lost", x.Lost())
	}
}

// TestDeviceEvents checks that an event of a device, port or queue is an error of its planes, and no error if
// retransmission may recover from it.
func TestDeviceEvents(t *testing.T) {
	moved := rdma.Entry{GID: rdma.GID{10: 0xff, 11: 0xff, 12: 10, 15: 99}, Type: rdma.RoCEv2}
	stays := rdma.Entry{GID: rdma.GID{0xfe, 0x80, 15: 2}, Type: rdma.RoCEv2}
	for _, c := range []struct {
		name   string
		o      rdma.ListenOptions
		before func(n *verbstest.Network, d rdma.Device)
		event  rdma.Event
		says   string // part of the error; "" for no error
	}{
		{"device removed", unacknowledged, nil, rdma.Event{Kind: rdma.DeviceFatal}, "has failed or was removed"},
		{"device removed, acknowledged", outOfBand, nil, rdma.Event{Kind: rdma.DeviceFatal}, "has failed or was removed"},
		{"completion queue", rdma.ListenOptions{}, nil, rdma.Event{Kind: rdma.CQFailed}, "a completion queue has failed"},
		{"queue pair", rdma.ListenOptions{}, nil, rdma.Event{Kind: rdma.QueueFailed, QPN: 0x12},
			"QP 0x12 to rank 0: a queue pair has failed"},
		{"another's queue pair", rdma.ListenOptions{}, nil, rdma.Event{Kind: rdma.QueueFailed, QPN: 0x77}, ""},
		{"port down", unacknowledged, nil, rdma.Event{Kind: rdma.PortDown, Port: 1}, "port 1: the port went down"},
		{"port down, acknowledged", rdma.ListenOptions{}, nil, rdma.Event{Kind: rdma.PortDown, Port: 1}, ""},
		{"another port down", unacknowledged, nil, rdma.Event{Kind: rdma.PortDown, Port: 2}, ""},
		{"address moved", rdma.ListenOptions{}, func(_ *verbstest.Network, d rdma.Device) {
			verbstest.SetPort(d, rdma.PortInfo{Active: true, MTU: 4096, Ethernet: true}, stays, moved)
		}, rdma.Event{Kind: rdma.AddressMoved, Port: 1}, "port 1: GID 1 is no longer"},
		{"another address moved", rdma.ListenOptions{}, func(_ *verbstest.Network, d rdma.Device) {
			verbstest.SetPort(d, rdma.PortInfo{Active: true, MTU: 4096, Ethernet: true}, moved,
				rdma.Entry{GID: rdma.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}, Type: rdma.RoCEv2})
		}, rdma.Event{Kind: rdma.AddressMoved, Port: 1}, ""},
		{"other event", rdma.ListenOptions{}, nil, rdma.Event{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := network(t)
			ports := []rdma.Device{n.Add("a"), n.Add("b")}
			e := connectWith(t, each(ports), c.o, nil)
			t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
			if c.before != nil {
				c.before(n, ports[1])
			}
			verbstest.RaiseEvent(ports[1], c.event)
			if c.says == "" {
				for range 5 {
					armed := e[1].Arm()
					if _, _, err := e[1].Planes()[0].Peek(0); err != nil {
						t.Fatal(err)
					}
					e[1].Wait(armed, time.Millisecond)
				}
				return
			}
			err := waitFor(t, "event", e[1], peeks(e[1], 0))
			wants(t, err, rdma.ErrDevice, "rank 1, plane 0, epoch 0", c.says)
			_, err = e[1].Planes()[0].TrySend(&wire.Header{Src: 1, Dst: 0}, []byte("x"))
			wants(t, err, rdma.ErrDevice, c.says)
		})
	}
}

// TestErrorNamesPortDown checks that the error of a queue pair says that its port went down before.
func TestErrorNamesPortDown(t *testing.T) {
	n := network(t)
	ports := []rdma.Device{n.Add("a"), n.Add("b")}
	e := connectWith(t, each(ports), rdma.ListenOptions{}, nil)
	t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
	verbstest.RaiseEvent(ports[0], rdma.Event{Kind: rdma.PortDown, Port: 1})
	e[0].Wait(e[0].Arm(), time.Minute) // returns after the event
	n.Drop(func(uint32, uint32, uint64) bool { return true })
	push(t, e[0].Planes()[0], 0, make([]byte, 8))
	err := waitFor(t, "loss", e[0], e[0].Planes()[0].Drained)
	wants(t, err, transport.ErrPeerLost, "RETRY_EXC_ERR", "the port went down")
}

// TestStatuses checks the error for each status with which a queue pair fails.
func TestStatuses(t *testing.T) {
	for status, c := range map[rdma.Status]struct {
		is   error
		says string
	}{
		rdma.RemInvReqErr: {rdma.ErrDevice, "REM_INV_REQ_ERR: the peer's device rejected the request"},
		rdma.AccessErr:    {rdma.ErrDevice, "REM_ACCESS_ERR: the peer's device rejected the memory address"},
		rdma.RemOpErr:     {rdma.ErrDevice, "REM_OP_ERR"},
		rdma.RNRExc:       {transport.ErrPeerLost, "RNR_RETRY_EXC_ERR: the peer posts no receives"},
		rdma.RetryExc:     {transport.ErrPeerLost, "RETRY_EXC_ERR: no acknowledgement"},
		rdma.FlushErr:     {transport.ErrPeerLost, "WR_FLUSH_ERR"},
		1:                 {rdma.ErrDevice, "LOC_LEN_ERR"},
		99:                {rdma.ErrDevice, "status 99"},
	} {
		n, p, e := pair(t, rdma.ListenOptions{})
		n.Hold(true)
		push(t, p[0], 0, make([]byte, 8))
		require.NoError(t, n.Fail(0x11, status, 0))
		err := waitFor(t, "failure", e[0], p[0].Drained)
		wants(t, err, c.is, "rank 0, plane 0, epoch 7", "QP 0x11 to rank 1", c.says)
		n.Hold(false)
	}
}

// TestTruncatedWrite checks that a write with fewer bytes than its header says is an error.
func TestTruncatedWrite(t *testing.T) {
	for _, size := range []uint32{0, 8, wire.HeaderSize - 1, wire.HeaderSize, wire.HeaderSize + 4} {
		n, p, e := pair(t, rdma.ListenOptions{})
		n.Truncate(size)
		push(t, p[0], 0, make([]byte, 8))
		err := waitFor(t, "frame", e[1], peeks(e[1], 0))
		wants(t, err, transport.ErrCorrupt, "rank 1, plane 0", "from rank 0")
	}
}
