package nic

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport/messages"
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
	x.launch.capture = l.Capture
	if err := x.reserve(l.Of.Script, &l.Bases); err != nil {
		return err
	}
	return x.record(recorder.Called{Shape: calls.ShapeOf(l.Call), Entry: l.Of.Entry})
}

// Check implements [stream.Wire]. It returns nil: the goroutine of [Path.run] fails the communicator.
func (x *Path) Check() error { return nil }

// Exchange implements [stream.Wire]. A message in memory that is not registered goes through the lane's room. Each
// round puts on the stream: copies of such messages into the room; a signal, on which the messages begin; a wait until
// they complete; copies of received data out of the room. All messages move in pieces, one piece of each message a
// round. Both ends cut the pieces alike. The copies and the signal of a round come before the wait of the previous
// round, so the ports have work while the device copies. The rooms of two rounds take turns.
//
// Hot path: groups no larger than earlier ones allocate nothing. No logging.
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

// pieceOf returns how many bytes of a message a round moves.
func (x *Path) pieceOf(bytes int64) int64 {
	return max(x.memory.piece, ((bytes+calls.MostPieces-1)/calls.MostPieces+calls.PieceAlign-1)&^(calls.PieceAlign-1))
}

func (x *Path) rounds(bytes int64) int64 {
	piece := x.pieceOf(bytes)
	return max((bytes+piece-1)/piece, 1)
}

// Parts returns about how many rounds a call's messages take.
func (x *Path) Parts(call *calls.Call) int64 {
	send, recv := call.Extents()
	return int64(x.c.Ranks) + max(send, recv)/x.memory.piece
}

// part returns the bytes of a message that a round moves. ok is false if there are none. A message of no bytes has one
// round.
func (x *Path) part(t *stream.Transfer, round int64) (from, n int64, ok bool) {
	piece := x.pieceOf(t.Bytes)
	from = round * piece
	n = min(piece, t.Bytes-from)
	return from, n, n > 0 || round == 0
}

// begin puts the first half of a round on the stream: the copies of sent data, and the signal.
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
		m := messages.Transfer{Plane: lane, Peer: int(t.Peer), Send: t.Send, Bytes: n, Tag: x.launch.tag}
		if x.rounds(t.Bytes) > 1 {
			m.Tag = program.Signature(uint64(x.launch.tag), uint64(t.Bytes))
		}
		if n > 0 {
			at := unsafe.Add(t.At, from)
			if m.Region = x.regionOf(t.At, t.Bytes); m.Region == nil {
				own := room.next(n)
				if own == nil {
					return nil, fmt.Errorf("shim: rank %d: the room of lane %d is too small for a message of %d bytes: %w", x.c.Rank,
						lane, t.Bytes, errdefs.ErrInternal)
				}
				if t.Send {
					if err := device.Active().Copy(own, at, int(n), s); err != nil {
						return nil, err
					}
				}
				at, m.Region = own, x.memory.rooms[lane].Region
			}
			m.At = at
		}
		ex.receives = ex.receives || !t.Send
		group.Transfers = append(group.Transfers, m)
	}
	return ex, device.Active().Signal(s, ex.token.Part(0))
}

// finish puts the second half of a round on the stream: the wait, and the copies of received data.
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
		if t.Send || n == 0 || m.Region != x.memory.rooms[ex.lane].Region {
			continue
		}
		if err := device.Active().Copy(unsafe.Add(t.At, from), m.At, int(n), s); err != nil {
			return err
		}
	}
	ex.putting = false
	return nil
}

// laneRoom is the part of a lane's room that a round uses.
type laneRoom struct {
	at   unsafe.Pointer
	left int64
}

func (x *Path) roomOf(lane int, round int64) laneRoom {
	m := &x.memory.rooms[lane]
	if m.At == nil {
		return laneRoom{}
	}
	return laneRoom{unsafe.Add(m.At, round%steps.Rooms*(m.Size/steps.Rooms)), m.Size / steps.Rooms}
}

// next takes n bytes of the room. It returns nil if fewer are left.
func (r *laneRoom) next(n int64) unsafe.Pointer {
	at := r.at
	if r.left -= roomOfPiece(n); r.left < 0 {
		return nil
	}
	r.at = unsafe.Add(r.at, roomOfPiece(n))
	return at
}

// roomOfPiece returns the room that a piece of n bytes takes. It keeps the next piece aligned.
func roomOfPiece(n int64) int64 { return (n + calls.PieceAlign - 1) &^ (calls.PieceAlign - 1) }

// regionOf returns the registered region that contains a buffer, nil if there is none.
func (x *Path) regionOf(at unsafe.Pointer, bytes int64) messages.Region {
	m := &x.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.regions {
		if r.Holds(at, bytes) {
			return r
		}
	}
	return nil
}

// reserve makes the lanes' rooms large enough for a script's messages, before any part of the script is on a stream.
func (x *Path) reserve(s *program.Script, bases *[program.Area + 1]unsafe.Pointer) error {
	for j := range x.memory.rooms {
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

// reserveMessages is reserve for the messages of a group.
func (x *Path) reserveMessages() error {
	for j := range x.memory.rooms {
		sum := int64(0)
		for i := range x.group.msgs {
			if t := x.partOf(&x.group.msgs[i], j); t.Peer >= 0 {
				sum += x.roomFor(t.At, t.Bytes)
			}
		}
		if err := x.enlarge(j, sum); err != nil {
			return err
		}
	}
	return nil
}

// roomFor returns the room that one round of a message takes.
func (x *Path) roomFor(at unsafe.Pointer, bytes int64) int64 {
	if bytes == 0 || x.regionOf(at, bytes) != nil {
		return 0
	}
	return roomOfPiece(min(bytes, x.pieceOf(bytes)))
}

// enlarge makes a lane's room large enough for rounds of the given size. It keeps the old room, which launches may
// still use.
func (x *Path) enlarge(lane int, round int64) error {
	m := &x.memory.rooms[lane]
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

// leastMemory is the smallest allocation that is registered, in bytes.
const leastMemory = 1 << 20

// Alloc implements [stream.Wire]. It returns registered device memory, whose size is a power of two. The caller has
// entered the context.
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

// register registers device memory with the ports. The caller has entered the context.
func (x *Path) register(at unsafe.Pointer, size int64) (messages.Region, error) {
	fd, offset, err := -1, uint64(0), error(nil)
	if !x.access.byAddress {
		if fd, offset, err = x.driver.ExportBuf(at, int(size)); err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }()
	}
	r, err := x.end.Register(fd, offset, at, int(size))
	if err != nil {
		return nil, err
	}
	m := &x.memory
	m.mu.Lock()
	m.regions = append(m.regions, r)
	m.mu.Unlock()
	return r, nil
}

// Register registers device memory with the communicator's ports, if they access that device. If it fails, the device
// copies the memory before sending it. That is no error, and release is nil.
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

// forget deregisters memory from the ports.
func (x *Path) forget(r messages.Region) error {
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
