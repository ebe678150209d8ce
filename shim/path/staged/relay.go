package staged

import (
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/steps"
)

// relayLane holds the words of a relay. Relay i of a launch uses lane i.
type relayLane struct {
	on            device.Stream // in this launch
	copied, moved *uint32       // by the device, and by the CPU
	seq           uint32        // value of both words after the last relay
	put           uint32        // pieces put on the stream
}

// laneSize is the bytes of a lane's two words.
const laneSize = 2 * memory.WordSize

// serve gives each relay of the launch a lane.
func (l *launch) serve() error {
	d, all := l.state, l.Relays.All
	for i := range all {
		if i == len(d.lanes) {
			if err := d.addLane(); err != nil {
				return err
			}
		}
		lane, r := d.lanes[i], &all[i]
		r.Copied, r.Moved, r.Base = lane.copied, lane.moved, lane.seq
		lane.put = 0
		lane.seq += r.Pieces
	}
	return nil
}

// addLane adds a lane. The words of the first lanes follow the communicator's word.
func (d *state) addLane() error {
	const perPage = memory.PageSize / laneSize
	page, i := d.control, len(d.lanes)+1
	if i >= perPage {
		if k := i/perPage - 1; k < len(d.words) {
			page = d.words[k]
		} else {
			var err error
			if page, err = d.dev.Lock(memory.PageSize); err != nil {
				return err
			}
			d.words = append(d.words, page)
		}
	}
	at := unsafe.Add(page.At, i%perPage*laneSize)
	lane := &relayLane{copied: (*uint32)(at), moved: (*uint32)(unsafe.Add(at, memory.WordSize))}
	atomic.StoreUint32(lane.copied, 0)
	atomic.StoreUint32(lane.moved, 0)
	d.lanes = append(d.lanes, lane)
	return nil
}

// putRelays puts the relays' copies on the launch's stream and on side streams, which fork from it and join it at its
// end. Sends and receives are on different streams, if there is a side stream. Relays to a peer, or from it, follow
// each other, as their messages do. The pieces of the others take turns. So relays also progress if a driver keeps
// several streams in one queue and all ranks post the same groups.
func (l *launch) putRelays() error {
	if len(l.Relays.All) == 0 {
		return nil
	}
	if err := l.forkSides(); err != nil {
		return err
	}
	for more := true; more; {
		more = false
		for _, send := range [...]bool{true, false} {
			put, err := l.putTurn(send)
			if err != nil {
				return err
			}
			more = more || put
		}
	}
	return nil
}

// putTurn puts a piece of each send, or of each receive. It reports whether there was one.
func (l *launch) putTurn(send bool) (more bool, err error) {
	all, lanes := l.Relays.All, l.state.lanes
	for i := range all {
		r := &all[i]
		if r.Send != send || lanes[i].put == r.Pieces || r.After >= 0 && lanes[r.After].put < all[r.After].Pieces {
			continue
		}
		if err := lanes[i].putPiece(r); err != nil {
			return false, err
		}
		more = true
	}
	return more, nil
}

// forkSides gives each relay a stream. Receives have the side streams. Sends have half of them, if there are several.
func (l *launch) forkSides() error {
	all, d := l.Relays.All, l.state
	if err := d.sides.Fork(d.dev, len(all), l.word, l.base+uint32(len(l.Steps)), l.streams[0]); err != nil {
		return err
	}
	half := len(d.sides.Streams) / 2
	sends, receives := d.sides.Streams[:half], d.sides.Streams[half:]
	for i := range all {
		mine := receives
		if all[i].Send {
			mine = sends
		}
		switch after := all[i].After; {
		case after >= 0:
			d.lanes[i].on = d.lanes[after].on
		case len(mine) > 0:
			d.lanes[i].on = mine[i%len(mine)]
		default:
			d.lanes[i].on = l.streams[0]
		}
	}
	return nil
}

// putPiece puts the next piece of a relay on the lane's stream.
func (l *relayLane) putPiece(r *steps.Relay) error {
	s, first := l.on, int(l.put)*r.Piece
	slot, size := unsafe.Add(r.Slots, int(l.put%steps.RelaySlots)*steps.Aligned(r.Piece)), min(r.Piece, r.Bytes-first)
	l.put++
	at, wait := unsafe.Add(r.Buffer, first), l.put
	if r.Send { // a piece to copy in must have been received first
		wait -= min(steps.RelaySlots, wait)
	}
	if wait > 0 {
		if err := device.Active().Await(s, r.Moved, r.Base+wait, false); err != nil {
			return err
		}
	}
	var err error
	if r.Send {
		err = device.Active().CopyOut(slot, at, size, s)
	} else {
		err = device.Active().CopyIn(at, slot, size, s)
	}
	if err == nil {
		err = device.Active().Store(s, r.Copied, r.Base+l.put)
	}
	return err
}
