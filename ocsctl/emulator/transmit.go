package emulator

import (
	"math"
	"sync/atomic"

	"lightpath/internal/shmring"
	"lightpath/plans/circuit"
)

// All times here are nanoseconds of CLOCK_MONOTONIC.
const (
	never = math.MaxInt64
	// catchUp bounds how far behind real time a transmitter may serialize after a pause of the switch itself.
	catchUp = int64(20e6)
	// creditWindow is the time after a late release in which a blocked sender must send again to get credit for the
	// delay.
	creditWindow = int64(2e6)
	// stallPoll is the time between two checks of a full receive ring without a kick.
	stallPoll = int64(100e3)
)

// transmitter is the sending end of one directed circuit: a serializer in virtual time. A frame starts when it has
// arrived and the wire is free, ends 8*data/bandwidth later, and is then delivered. While the ring has frames, each
// frame starts at the end of the previous one, even if the switch checks the ring later. So scheduling jitter of the
// host delays deliveries, but does not add up.
type transmitter struct {
	port int
	tx   *shmring.Ring // nil: no rank attached
	to   int           // port to which the circuit leads now; circuit.Dark: none
	made uint32        // the port's epoch when this circuit was made
	dark bool          // the plane is moving this circuit

	asked *atomic.Uint32 // PortMemory.idle: set to request a kick for the next frame

	busy          bool // the head frame is on the wire
	idle          bool // the ring has been seen empty since the last frame
	start, finish int64
	free          int64 // when the wire was last free
	fullAt        int64 // when the receive ring was last seen full for the head; 0 never
	// A delay of the switch itself may have kept a sender blocked on a full ring. Frames that the sender then sends at
	// once start earlier by that delay.
	credit, creditUntil int64
}

// service advances t to now, and returns the time of its next action.
func (c *circuits) service(pl *medium, t *transmitter, now int64) int64 {
	for range 2 * c.geo.slots {
		if !t.busy {
			payload, tag, err := t.tx.Peek()
			if err != nil {
				c.broken(t.port, err)
				return never
			}
			if payload == nil {
				t.idle = true
				if t.asked.Load() == 0 {
					t.asked.Store(1)
					continue // a frame may have arrived before the rank saw the request
				}
				return never
			}
			if v := judge(pl, t, tag); v != Delivered {
				t.start = now
				c.lose(pl, t, v, now)
				continue
			}
			t.begin(pl, len(payload), now)
		}
		if t.finish > now {
			return t.finish
		}
		if !c.deliver(pl, t, now) {
			return now + stallPoll
		}
	}
	return now // as many as the ring holds: continue with other circuits
}

// judge decides whether a frame may enter the circuit: the circuit must exist, and must be the one that the sender
// meant. All tags from the epoch in which the circuit was made up to the present one name it.
func judge(pl *medium, t *transmitter, tag uint32) Verdict {
	switch {
	case t.dark || t.to == circuit.Dark:
		return LostDark
	case tag < t.made || tag > pl.epochs[t.port]:
		return LostEpoch
	}
	return Delivered
}

// begin puts the head frame, of n bytes with its label, on the wire.
func (t *transmitter) begin(pl *medium, n int, now int64) {
	arrived := now - catchUp
	if t.idle {
		arrived = now
		if now <= t.creditUntil {
			arrived -= t.credit
		}
		t.idle, t.credit = false, 0
	}
	t.start = max(t.free, arrived)
	t.finish = t.start + int64(pl.nsPerByte*float64(max(0, n-LabelSize))+0.5)
	t.busy, t.fullAt = true, 0
}

// deliver copies the completed head frame to the port at the end of the circuit, and frees its slot. It returns false
// if the receiver has no room. Then the frame stays on the wire, as on a link with flow control.
func (c *circuits) deliver(pl *medium, t *transmitter, now int64) bool {
	payload, tag, err := t.tx.Peek()
	if err != nil || payload == nil {
		c.broken(t.port, shmring.ErrCorrupt)
		return false
	}
	dst := c.ports[t.to]
	if dst == nil {
		c.lose(pl, t, LostVacant, now)
		return true
	}
	rx := dst.view.rx[pl.index]
	slot := rx.Reserve()
	if slot == nil {
		rx.Want()
		if slot = rx.Reserve(); slot == nil {
			t.fullAt = now
			return false
		}
	}
	end := max(t.finish, t.fullAt)
	pl.stats.Stalled += end - t.finish
	rx.Commit(copy(slot, payload), tag)
	pl.stats.Frames++
	pl.stats.Bytes += uint64(max(0, len(payload)-LabelSize))
	c.record(pl, t, payload, tag, Delivered, end)
	late := now - end
	pl.stats.Late = max(pl.stats.Late, late)
	if t.tx.Free() == 0 {
		t.credit, t.creditUntil = min(late, catchUp), now+creditWindow
	}
	t.busy, t.free = false, end
	t.tx.Release()
	dst.bell.Ring()
	// A sender waits for room in a full ring, or for an empty ring. Waking it for every slot in between would cost a
	// core's time.
	if n := t.tx.Pending(); n == 0 || n == c.geo.slots/2 {
		c.ports[t.port].bell.Ring()
	}
	return true
}

// lose drops the head frame, raises the alarm at its sender and then frees the slot, in
// this order: a sender that finds its ring empty must also find the alarm.
func (c *circuits) lose(pl *medium, t *transmitter, v Verdict, now int64) {
	payload, tag, _ := t.tx.Peek()
	c.record(pl, t, payload, tag, v, now)
	pl.stats.Lost[v]++
	src := c.ports[t.port]
	src.view.alarms[pl.index].raise(v, tag, t.to)
	t.busy, t.free = false, max(t.free, now)
	if payload != nil {
		t.tx.Release()
	}
	src.bell.Ring()
}

// record writes the head frame of t into the log.
func (c *circuits) record(pl *medium, t *transmitter, payload []byte, tag uint32, v Verdict, end int64) {
	if c.log == nil {
		return
	}
	r := FrameRecord{
		Start: t.start, Finish: end, Plane: uint16(pl.index), Src: uint16(t.port), Dst: vacantPort,
		Epoch: tag, Bytes: uint32(max(0, len(payload)-LabelSize)), Verdict: v,
	}
	if t.to != circuit.Dark {
		r.Dst = uint16(t.to)
	}
	copy(r.Label[:], payload)
	c.log.frame(&r)
}
