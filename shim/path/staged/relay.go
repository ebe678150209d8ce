package staged

import (
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/steps"
	"lightpath/shim/stream"
)

// relayLane holds the stream, event and words of a relay. Relay i of a launch uses lane i.
type relayLane struct {
	stream device.Stream
	event  device.Event
	words  memory.Pinned // the device's, and the CPU's
	seq    uint32        // value of both words after the last relay
	put    uint32        // pieces put on the stream
}

func (l *relayLane) copied() *uint32 { return l.words.Word() }
func (l *relayLane) moved() *uint32  { return (*uint32)(unsafe.Add(l.words.At, memory.WordSize)) }

// serve gives each relay of the launch a lane.
func (l *launch) serve() error {
	d, all := l.state, l.Relays.All
	for i := range all {
		if i == len(d.lanes) {
			d.lanes = append(d.lanes, new(relayLane))
		}
		lane, r := d.lanes[i], &all[i]
		if err := d.open(lane); err != nil {
			return err
		}
		r.Copied, r.Moved, r.Base = lane.copied(), lane.moved(), lane.seq
		lane.put = 0
		lane.seq += r.Pieces
	}
	return nil
}

// open creates what the lane does not have yet.
func (d *state) open(l *relayLane) (err error) {
	if err = stream.NewEvents(&l.event); err == nil && l.stream == 0 {
		l.stream, err = device.Active().NewStream()
	}
	if err == nil && l.words.At == nil {
		if l.words, err = d.dev.Lock(2 * memory.WordSize); err == nil {
			atomic.StoreUint32(l.copied(), l.seq)
			atomic.StoreUint32(l.moved(), l.seq)
		}
	}
	return err
}

// close frees the lane.
func (l *relayLane) close(d *stream.Device) {
	if l.event != 0 {
		_ = device.Active().FreeEvent(l.event)
	}
	if l.stream != 0 {
		_ = device.Active().FreeStream(l.stream)
	}
	d.Unlock(l.words)
}

// putRelays puts the relays' copies on streams that fork from the launch's stream and join it at its end. The pieces
// of all relays take turns. So relays also progress if a driver keeps several streams in one queue and all ranks post
// the same groups.
func (l *launch) putRelays() error {
	if len(l.Relays.All) == 0 {
		return nil
	}
	if err := device.Active().Record(l.state.dev.Joint, l.streams[0]); err != nil {
		return err
	}
	for i := range l.Relays.All {
		if err := device.Active().Follow(l.state.lanes[i].stream, l.state.dev.Joint); err != nil {
			return err
		}
	}
	for more := true; more; {
		more = false
		for _, send := range [...]bool{true, false} {
			for i := range l.Relays.All {
				on, lane := &l.Relays.All[i], l.state.lanes[i]
				if on.Send != send || lane.put == on.Pieces {
					continue
				}
				if err := lane.putPiece(on); err != nil {
					return err
				}
				more = true
			}
		}
	}
	return nil
}

// putPiece puts the next piece of a relay on the lane's stream.
func (l *relayLane) putPiece(r *steps.Relay) error {
	s, first := l.stream, int(l.put)*r.Piece
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
