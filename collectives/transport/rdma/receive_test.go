package rdma

import (
	"encoding/binary"
	"testing"

	"lightpath/collectives/transport/internal/poller"
	"lightpath/collectives/wire"
)

// lone returns one rank's plane with rings of two slots in ordinary memory, and no queue pair.
func lone(t testing.TB) *plane {
	t.Helper()
	set, err := poller.New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close(func() {}) })
	const payload = 1 << 10
	p := &plane{e: &Endpoint{poll: set}, rank: 1, slots: 2, slot: slotSize(payload), payload: payload, every: 1, repost: 1 << 30, peers: make([]peer, 2)}
	p.peers[0] = peer{ring: make([]byte, 2*p.slot), sizes: make([]uint32, 2)}
	return p
}

// FuzzReceive: whatever a peer writes and whatever its immediates say is a frame that is due, or
// an error, and moves no count beyond what there is.
func FuzzReceive(f *testing.F) {
	var frame [wire.HeaderSize + 8]byte
	wire.Encode(&wire.Header{Dst: 1, Length: 8}, frame[:])
	event := func(imm, bytes uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, imm), bytes)
	}
	f.Add(frame[:], event(0, uint32(len(frame))))
	f.Add(frame[:], append(event(0, 72), event(1, 72)...))
	f.Add(frame[:5], event(immCredit<<immShift|1, 0))
	f.Add(frame[:], event(immBye<<immShift, 0))
	f.Add(frame[:], event(3<<immShift, 1<<31))
	f.Add(frame[:], append(event(0, 72), event(2, 72)...))
	f.Fuzz(func(t *testing.T, ring, events []byte) {
		for _, unacknowledged := range []bool{false, true} {
			receiveAll(t, unacknowledged, ring, events)
		}
	})
}

// receiveAll has a plane take events, each an immediate and a size, with something in its ring.
func receiveAll(t *testing.T, unacknowledged bool, ring, events []byte) {
	p := lone(t)
	p.unacknowledged = unacknowledged
	q := &p.peers[0]
	q.sent = 1
	copy(q.ring, ring)
	copy(q.ring[p.slot:], ring)
	for ; len(events) >= 8; events = events[8:] {
		p.complete(&Completion{ID: recvBit, Imm: binary.LittleEndian.Uint32(events), Bytes: binary.LittleEndian.Uint32(events[4:])})
		if q.arrived-q.next > uint64(p.slots) || q.released > q.sent {
			t.Fatalf("arrived %d, released here %d; sent %d, released there %d", q.arrived, q.next, q.sent, q.released)
		}
	}
	if q.arrived == q.next {
		return
	}
	if err := p.decode(q); err == nil && (q.hdr.Src != 0 || q.hdr.Dst != 1 || int(q.hdr.Length) != len(q.data) || len(q.data) > p.payload) {
		t.Fatalf("accepted %+v with %d bytes", q.hdr, len(q.data))
	}
}

// TestCounts: counts of 30 bits go on where they wrap.
func TestCounts(t *testing.T) {
	for _, base := range []uint64{0, 5, immMask - 1, immMask, immMask + 1, 3<<immShift - 2, 1<<40 + 7} {
		for _, ahead := range []uint64{0, 1, 2, 100} {
			if got := since(base, uint32(base+ahead)&immMask); got != base+ahead {
				t.Errorf("%d ahead of %d: %d", ahead, base, got)
			}
		}
	}
}

// FuzzCounts: whatever a peer says, no count goes back, or beyond what was sent.
func FuzzCounts(f *testing.F) {
	f.Add(uint64(0), uint64(0), uint64(0), uint64(5))
	f.Add(uint64(1<<63), uint64(3), uint64(1)<<62, uint64(3))
	f.Fuzz(func(t *testing.T, released, arrived, left, sent uint64) {
		q := &peer{sent: sent, released: sent / 2}
		q.confirmed, q.announced = sent/3, sent/4
		before := *q
		moved := q.learn(released, arrived, left)
		switch {
		case q.released < before.released || q.released > sent, q.confirmed < before.confirmed || q.confirmed > sent, q.announced < before.announced:
			t.Fatalf("%+v became %+v", before.flowCounts, q.flowCounts)
		case moved != (q.released != before.released || q.confirmed != before.confirmed):
			t.Fatalf("moved %v: %+v became %+v", moved, before.flowCounts, q.flowCounts)
		case q.learn(released, arrived, left):
			t.Fatal("the same message moves something again")
		}
	})
}
