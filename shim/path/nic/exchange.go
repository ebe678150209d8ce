package nic

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport/rdma/rendezvous"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/recorder"
	"lightpath/shim/steps"
	"lightpath/shim/stream"
)

// Prepare implements [stream.Wire].
func (x *Path) Prepare(l *stream.Launch) error {
	x.capture = l.Capture
	if err := x.reserve(l.Of.Script, &l.Bases); err != nil {
		return err
	}
	return x.record(recorder.Called{Shape: calls.ShapeOf(l.Call), Entry: l.Of.Entry})
}

// Check implements [stream.Wire]: the goroutine that works on messages fails the communicator.
func (x *Path) Check() error { return nil }

// Stop implements [stream.Wire].
func (x *Path) Stop(bool) { _ = x.stop() }

// Exchange implements [stream.Wire]. On the stream come, for every round: copies of what is sent from memory that no port knows into the
// lane's room; a signal, on which the messages begin; a wait until they are over; copies of what has come into such memory.
// All messages move in pieces, which both ends cut alike, one of each to a round. The copies and the signal of a round come before the
// wait of the one before it, so the ports have work while the device copies; the rooms of two rounds take turns.
//
// Hot path: no allocation for groups as large as seen before, no logging.
func (x *Path) Exchange(lane int, list []stream.Transfer, s device.Stream) error {
	rounds := int64(1)
	for i := range list {
		rounds = max(rounds, x.rounds(list[i].Bytes))
	}
	before, err := x.begin(lane, list, 0, s)
	for r := int64(0); r < rounds && err == nil; r++ {
		ex := before
		if r+1 < rounds {
			if before, err = x.begin(lane, list, r+1, s); err != nil {
				return err
			}
		}
		err = x.finish(ex, list, r, s)
	}
	return err
}

// pieceOf is how many bytes of a message a round moves.
func (x *Path) pieceOf(bytes int64) int64 {
	return max(x.piece, ((bytes+calls.MostPieces-1)/calls.MostPieces+calls.PieceAlign-1)&^(calls.PieceAlign-1))
}

func (x *Path) rounds(bytes int64) int64 {
	piece := x.pieceOf(bytes)
	return max((bytes+piece-1)/piece, 1)
}

// Parts is about how many rounds a call's messages take.
func (x *Path) Parts(call *calls.Call) int64 {
	send, recv := call.Extents()
	return int64(x.c.Ranks) + max(send, recv)/x.piece
}

// part returns the bytes of a message that a round moves; ok is false where it has none. A message of no bytes has one round.
func (x *Path) part(t *stream.Transfer, round int64) (from, n int64, ok bool) {
	piece := x.pieceOf(t.Bytes)
	from = round * piece
	n = min(piece, t.Bytes-from)
	return from, n, n > 0 || round == 0
}

// begin puts a round on the stream, up to its beginning.
func (x *Path) begin(lane int, list []stream.Transfer, round int64, s device.Stream) (*exchange, error) {
	ex, err := x.take(lane)
	if err != nil {
		return nil, err
	}
	ex.putting = true
	room := x.roomOf(lane, round)
	group := &ex.group
	group.Transfers, ex.receives = group.Transfers[:0], false
	for i := range list {
		t := &list[i]
		from, n, ok := x.part(t, round)
		if !ok {
			continue
		}
		m := rendezvous.Transfer{Plane: lane, Peer: int(t.Peer), Send: t.Send, Bytes: n, Tag: x.tag}
		if x.rounds(t.Bytes) > 1 {
			m.Tag = program.Signature(uint64(x.tag), uint64(t.Bytes))
		}
		if n > 0 {
			at := unsafe.Add(t.At, from)
			if m.Region = x.regionOf(t.At, t.Bytes); m.Region == nil {
				own := room.next(n)
				if own == nil {
					return nil, fmt.Errorf("shim: rank %d: the room of lane %d is too small for a message of %d bytes: %w", x.c.Rank, lane, t.Bytes, errdefs.ErrInternal)
				}
				if t.Send {
					if err := device.Active().Copy(own, at, int(n), s); err != nil {
						return nil, err
					}
				}
				at, m.Region = own, x.rooms[lane].Region
			}
			m.At = uintptr(at)
		}
		ex.receives = ex.receives || !t.Send
		group.Transfers = append(group.Transfers, m)
	}
	return ex, device.Active().Signal(s, ex.token.Part(0))
}

// finish puts the end of a round on the stream.
func (x *Path) finish(ex *exchange, list []stream.Transfer, round int64, s device.Stream) error {
	if err := errors.Join(device.Active().Await(s, ex.word, 1, true), device.Active().Store(s, ex.word, 0)); err != nil {
		return err
	}
	k := 0
	for i := range list {
		t := &list[i]
		from, n, ok := x.part(t, round)
		if !ok {
			continue
		}
		m := &ex.group.Transfers[k]
		k++
		if t.Send || n == 0 || m.Region != x.rooms[ex.lane].Region {
			continue
		}
		own := unsafe.Add(x.rooms[ex.lane].At, int(m.At-uintptr(x.rooms[ex.lane].At)))
		if err := device.Active().Copy(unsafe.Add(t.At, from), own, int(n), s); err != nil {
			return err
		}
	}
	ex.putting = false
	return nil
}

// laneRoom is the part of a lane's room that a round has.
type laneRoom struct {
	at   unsafe.Pointer
	left int64
}

func (x *Path) roomOf(lane int, round int64) laneRoom {
	m := &x.rooms[lane]
	if m.At == nil {
		return laneRoom{}
	}
	return laneRoom{unsafe.Add(m.At, round%steps.Rooms*(m.Size/steps.Rooms)), m.Size / steps.Rooms}
}

// next takes room for so many bytes, nil where there is none.
func (r *laneRoom) next(n int64) unsafe.Pointer {
	at := r.at
	if r.left -= roomOfPiece(n); r.left < 0 {
		return nil
	}
	r.at = unsafe.Add(r.at, roomOfPiece(n))
	return at
}

// roomOfPiece is what a piece takes in a room, so that the next one begins as aligned as any memory.
func roomOfPiece(n int64) int64 { return (n + calls.PieceAlign - 1) &^ (calls.PieceAlign - 1) }

// regionOf returns the region that holds all of some memory, nil for none.
func (x *Path) regionOf(at unsafe.Pointer, bytes int64) *rendezvous.Region {
	m := &x.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.regions {
		if r.Holds(uintptr(at), bytes) {
			return r
		}
	}
	return nil
}

// reserve makes the lanes' rooms large enough for a script's messages, before any of it is on a stream.
func (x *Path) reserve(s *program.Script, bases *[program.Area + 1]unsafe.Pointer) error {
	for j := range x.rooms {
		most := int64(0)
		for i := range s.Batches {
			b := &s.Batches[i]
			if b.Lane != j {
				continue
			}
			sum := int64(0)
			for k := range b.Transfers {
				if g := b.Transfers[k].At; g.Buf == schedule.Input || g.Buf == schedule.Output {
					sum += x.roomFor(unsafe.Add(bases[g.Buf], g.Off), g.Len)
				}
			}
			most = max(most, sum)
		}
		if err := x.enlarge(j, most); err != nil {
			return err
		}
	}
	return nil
}

// reserveMessages is reserve for those of a group.
func (x *Path) reserveMessages() error {
	for j := range x.rooms {
		sum := int64(0)
		for i := range x.msgs {
			if t := x.partOf(&x.msgs[i], j); t.Peer >= 0 {
				sum += x.roomFor(t.At, t.Bytes)
			}
		}
		if err := x.enlarge(j, sum); err != nil {
			return err
		}
	}
	return nil
}

// roomFor is what a round of a message takes in a room.
func (x *Path) roomFor(at unsafe.Pointer, bytes int64) int64 {
	if bytes == 0 || x.regionOf(at, bytes) != nil {
		return 0
	}
	return roomOfPiece(min(bytes, x.pieceOf(bytes)))
}

// enlarge makes a lane's room large enough for rounds that take so much. What launches may still use is kept.
func (x *Path) enlarge(lane int, round int64) error {
	m := &x.rooms[lane]
	if steps.Rooms*round <= m.Size {
		return nil
	}
	larger, err := x.Alloc(steps.Rooms * round)
	if err != nil {
		return err
	}
	x.in.Outgrow(*m)
	*m = larger
	return nil
}

// leastMemory is the least memory that is registered at a time.
const leastMemory = 1 << 20

// Alloc implements [stream.Wire]: it returns memory of the device that the ports know, of a size that is a power of two. The context has been entered.
func (x *Path) Alloc(size int64) (m stream.Memory, err error) {
	for m.Size = leastMemory; m.Size < size; m.Size *= 2 {
	}
	page := os.Getpagesize()
	if m.Base, err = x.driver.AllocExchange(int(m.Size) + page); err != nil {
		return stream.Memory{}, err
	}
	m.At = unsafe.Add(m.Base, -uintptr(m.Base)&uintptr(page-1))
	if m.Region, err = x.register(m.At, m.Size); err != nil {
		return stream.Memory{}, errors.Join(err, x.driver.FreeExchange(m.Base))
	}
	return m, nil
}

// register makes memory of the device known to the ports. The context has been entered.
func (x *Path) register(at unsafe.Pointer, size int64) (*rendezvous.Region, error) {
	fd, offset, err := x.driver.ExportBuf(at, int(size))
	if err != nil {
		return nil, err
	}
	r, err := x.end.Register(fd, offset, uintptr(at), int(size))
	if cerr := unix.Close(fd); err != nil {
		return nil, errors.Join(err, cerr)
	}
	m := &x.memory
	m.mu.Lock()
	m.regions = append(m.regions, r)
	m.mu.Unlock()
	return r, nil
}

// Register has the communicator's ports know memory of its device, if they reach that. Memory that they do not know is copied
// on the device, and that is no error.
func Register(c *comm.Core, buff unsafe.Pointer, size uintptr) (release func() error) {
	x := slot.Of(c)
	if x == nil || size == 0 {
		return nil
	}
	if err := x.driver.EnterContext(x.ctx); err != nil {
		return nil // the next call that uses the context fails
	}
	defer x.driver.Leave()
	r, err := x.register(buff, int64(size))
	if err != nil {
		c.Log.Info(log.Net, "memory of the device at %p is copied there before it is sent: %v", buff, err)
		return nil
	}
	return func() error { return x.forget(r) }
}

// Forget implements [stream.Wire].
func (x *Path) Forget(m *stream.Memory) { _ = x.forget(m.Region) }

// forget has the ports forget memory.
func (x *Path) forget(r *rendezvous.Region) error {
	m := &x.memory
	m.mu.Lock()
	for i := range m.regions {
		if m.regions[i] == r {
			m.regions[i] = m.regions[len(m.regions)-1]
			m.regions = m.regions[:len(m.regions)-1]
			break
		}
	}
	m.mu.Unlock()
	return r.Close()
}
