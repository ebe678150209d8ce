package rdma

import (
	"encoding/binary"
	"errors"
	"testing"

	"lightpath/collectives/transport/internal/poller"
	"lightpath/collectives/wire"
	"lightpath/internal/assert"
)

// receivePlane returns rank 1's plane with rings of two slots in ordinary memory, and no queue pair.
func receivePlane(t testing.TB) *plane {
	t.Helper()
	set, err := poller.New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close(func() {}) })
	const payload = 1 << 10
	p := &plane{
		e: &Endpoint{poll: set}, rank: 1, slots: 2, slot: slotSize(payload), payload: payload,
		batch: 1 << 30, peers: make([]peer, 2),
	}
	p.peers[0] = peer{ring: make([]byte, 2*p.slot), sizes: make([]uint32, 2)}
	return p
}

// FuzzReceive receives arbitrary bytes and immediates. The plane returns the next frame or an error, and no count
// exceeds its bound.
func FuzzReceive(f *testing.F) {
	var frame [wire.HeaderSize + 8]byte
	wire.Encode(&wire.Header{Dst: 1, Length: 8}, frame[:])
	event := func(imm, bytes uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, imm), bytes)
	}
	f.Add(frame[:], event(0, uint32(len(frame))))
	f.Add(frame[:], append(event(0, 72), event(1, 72)...))
	f.Add(frame[:5], event(immCredit<<immShift|1, 0))
	f.Add(frame[:], event(immClosing<<immShift, 0))
	f.Add(frame[:], event(3<<immShift, 1<<31))
	f.Add(frame[:], append(event(0, 72), event(2, 72)...))
	f.Fuzz(func(t *testing.T, ring, events []byte) {
		for _, unacknowledged := range []bool{false, true} {
			receiveAll(t, unacknowledged, ring, events)
		}
	})
}

// receiveAll receives events, each an immediate and a size, with the given bytes in both slots.
func receiveAll(t *testing.T, unacknowledged bool, ring, events []byte) {
	p := receivePlane(t)
	p.unacknowledged = unacknowledged
	q := &p.peers[0]
	q.sent = 1
	copy(q.ring, ring)
	copy(q.ring[p.slot:], ring)
	for ; len(events) >= 8; events = events[8:] {
		imm, size := binary.LittleEndian.Uint32(events), binary.LittleEndian.Uint32(events[4:])
		p.complete(&Completion{ID: RecvID(0), Imm: imm, Bytes: size})
		if q.arrived-q.next > uint64(p.slots) || q.released > q.sent {
			t.Fatalf("received: arrived %d, released %d; sent: sent %d, released %d", q.arrived, q.next, q.sent, q.released)
		}
	}
	if q.arrived == q.next {
		return
	}
	if err := p.decode(q); err == nil && (q.hdr.Src != 0 || q.hdr.Dst != 1 || int(q.hdr.Length) != len(q.data) ||
		len(q.data) > p.payload) {
		t.Fatalf("accepted %+v with %d bytes", q.hdr, len(q.data))
	}
}

// noReceives is a queue pair that refuses receives.
type noReceives struct{ QP }

func (noReceives) Number() uint32             { return 0x12 }
func (noReceives) PostRecv(uint64, int) error { return errors.ErrUnsupported }

// TestRefusedReceive checks that the error of a queue pair that refuses receives names ranks, plane and queue pair.
func TestRefusedReceive(t *testing.T) {
	p := receivePlane(t)
	p.batch, p.peers[0].qp = 1, noReceives{}
	p.complete(&Completion{ID: RecvID(0), Bytes: wire.HeaderSize})
	err := p.peers[0].err
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	assert.Contains(t, err.Error(), "rank 1", "plane 0", "from rank 0", "QP 0x12")
}

// TestExpand expands counts of 30 bits, also around their wrap.
func TestExpand(t *testing.T) {
	for _, base := range []uint64{0, 5, immMask - 1, immMask, immMask + 1, 3<<immShift - 2, 1<<40 + 7} {
		for _, ahead := range []uint64{0, 1, 2, 100} {
			if got := expand(base, uint32(base+ahead)&immMask); got != base+ahead {
				t.Errorf("%d ahead of %d: %d", ahead, base, got)
			}
		}
	}
}

// FuzzCounts passes arbitrary counts to update. No count may decrease or exceed the number of sent frames.
func FuzzCounts(f *testing.F) {
	f.Add(uint64(0), uint64(0), uint64(0), uint64(5))
	f.Add(uint64(1<<63), uint64(3), uint64(1)<<62, uint64(3))
	f.Fuzz(func(t *testing.T, released, arrived, left, sent uint64) {
		q := &peer{sent: sent, released: sent / 2}
		q.confirmed, q.peerSent = sent/3, sent/4
		before := *q
		moved := q.update(released, arrived, left)
		switch {
		case q.released < before.released || q.released > sent, q.confirmed < before.confirmed || q.confirmed > sent,
			q.peerSent < before.peerSent:
			t.Fatalf("before %+v, after %+v", before.flowCounts, q.flowCounts)
		case moved != (q.released != before.released || q.confirmed != before.confirmed):
			t.Fatalf("update returned %v: before %+v, after %+v", moved, before.flowCounts, q.flowCounts)
		case q.update(released, arrived, left):
			t.Fatal("a repeated message changes a count")
		}
	})
}
