package shim

import (
	"slices"
	"sync"
	"time"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/memory"
)

// script is what calls of one communicator become that move in pieces, or through staging memory: steps, each of them a group of
// calls on host memory, which run one after another. Steps take turns with two rooms of staging memory, so that what a step
// receives can be copied out of one while the other has what the next step sends.
//
// One piece follows another, call by call, since that is an order that ranks share whatever their groups are. Only sends and receives of one
// group may depend on each other in ways that no rank sees alone: they are one step, in which long ones move by themselves (relay).
type script struct {
	comm    *comm.Core
	from    []calls.Call // as they were made, checked
	staged  []stagedBuffers
	scalars []scalarAt

	whole    bool // one step, with room for everything
	together bool // several messages, which are one step
	relaying bool // long ones among them move through two slots each, on streams of their own
	sendRoom int  // bytes of staging memory for what a step sends, in either room,
	recvRoom int  // and for what it receives: never in the place of what another one sends
	deadline time.Time
	at       unsafe.Pointer // the staging memory
	sendAt   int            // how far it is in use
	recvAt   int            // where what is received has a place of its own; -1: behind what is sent

	steps []step
	calls []calls.Call // of the steps
	outs  []move
	ins   []move

	relays relays // of the last step
}

// step is where a step ends in the lists of its script. It begins where the one before it ends.
type step struct{ calls, outs, ins int }

// scalarAt is the element of an operator that is in device memory.
type scalarAt struct {
	call         int // of from
	room, device unsafe.Pointer
}

// move is a copy between a buffer, where rows begin pitch bytes apart, and staging memory, where row follows row.
type move struct {
	room, buffer       unsafe.Pointer
	width, rows, pitch int
	byCPU              bool // the buffer is host memory
}

const (
	// scalarRoom is what an element of an operator takes in staging memory.
	scalarRoom = 8
	// roomAlign is what buffers in staging memory begin at a multiple of: a cache line.
	roomAlign = 64
	// stepRooms are those of the steps on their way.
	stepRooms = 2
)

func aligned(size int) int { return (size + roomAlign - 1) &^ (roomAlign - 1) }

// strided: the rows are not one stretch of the buffer.
func (m *move) strided() bool { return m.rows > 1 && m.width < m.pitch }

func (m *move) roomFor() int { return aligned(m.width * m.rows) }

// rowsOf returns what n elements of each block of a call are in its buffers.
func rowsOf(c *calls.Call, n uint64) (send, recv move) {
	if c.Count == 0 || c.Kind.OneSided() {
		return send, recv
	}
	block, width := int(c.Count)*c.Type.Size(), int(n)*c.Type.Size()
	sent, received := c.Extents()
	send = move{width: width, rows: int(sent) / block, pitch: block}
	recv = move{width: width, rows: int(received) / block, pitch: block}
	return send, recv
}

// roomFor is what n elements of each block of a call take in staging memory. Where they are no stretch of host memory,
// those do too.
func (s *script) roomFor(i int, n uint64) (sent, received int) {
	send, recv := rowsOf(&s.from[i], n)
	if s.staged[i].send || send.strided() {
		sent = send.roomFor()
	}
	if s.staged[i].recv || recv.strided() {
		received = recv.roomFor()
	}
	return sent, received
}

// begin makes the script that of a communicator's calls. What it has allocated is reused.
func (s *script) begin(c *comm.Core) {
	s.comm, s.deadline = c, time.Time{}
	s.from, s.staged, s.scalars, s.relays.selfs = s.from[:0], s.staged[:0], s.scalars[:0], s.relays.selfs[:0]
}

// measure divides the calls into steps, and returns what staging memory they take. What fits into that of steps on their way is
// one step, unless the ranks have agreed to cut some of it.
func (s *script) measure() int {
	all, messages, cut := 0, 0, false
	for i := range s.from {
		c := &s.from[i]
		sent, received := s.roomFor(i, c.Count)
		all += sent + received
		if c.Kind.P2P() {
			messages++
		} else {
			cut = cut || c.IsCut()
		}
	}
	s.together, s.sendRoom, s.recvRoom = messages > 1, 0, 0
	for i := range s.from {
		if c := &s.from[i]; !c.Kind.P2P() || !s.together {
			sent, received := s.roomFor(i, c.PieceCount())
			s.sendRoom, s.recvRoom = max(s.sendRoom, sent), max(s.recvRoom, received)
			cut = cut || c.IsCut()
		}
	}
	fits := calls.FactsOf(s.comm).Cut == 0 || int64(all) <= 2*stepRooms*calls.FactsOf(s.comm).Cut
	if s.whole = !cut && fits; s.whole {
		return s.scalarsRoom() + all
	}
	s.matchSelf()
	return s.scalarsRoom() + stepRooms*(s.sendRoom+s.recvRoom) + s.messagesRoom()
}

func (s *script) scalarsRoom() int { return aligned(scalarRoom * len(s.scalars)) }

// messagesRoom is what the messages take that are one step.
func (s *script) messagesRoom() (size int) {
	for i := range s.from {
		c := &s.from[i]
		switch {
		case !s.together || !c.Kind.P2P() || s.staged[i].toSelf:
		case s.isRelayed(i):
			size += relaySlots * aligned(pieceBytes(c))
		default:
			sent, received := s.roomFor(i, c.Count)
			size += sent + received
		}
	}
	return size
}

// write writes the steps. Their staging memory, of the size that measure has returned, is at a place of its own.
func (s *script) write(at unsafe.Pointer) {
	s.at = at
	s.steps, s.calls, s.outs, s.ins = s.steps[:0], s.calls[:0], s.outs[:0], s.ins[:0]
	s.relays.all, s.relays.pieces, s.relays.order = s.relays.all[:0], s.relays.pieces[:0], s.relays.order[:0]
	for i := range s.scalars {
		x := &s.scalars[i]
		x.room = unsafe.Add(at, scalarRoom*i)
		s.from[x.call].Scalar = x.room
	}
	s.sendAt, s.recvAt = s.scalarsRoom(), -1
	if s.whole {
		s.writeTogether(func(*calls.Call) bool { return true })
		return
	}
	s.writeTogether(func(c *calls.Call) bool { return c.Kind.OneSided() }) // which stages nothing
	rooms := s.sendAt
	for i := range s.from {
		c := &s.from[i]
		if c.Kind.OneSided() || c.Kind.P2P() && s.together {
			continue
		}
		n, first := c.PieceCount(), uint64(0)
		for more := true; more; more = first < c.Count {
			s.sendAt = rooms + (s.sendRoom+s.recvRoom)*(len(s.steps)%stepRooms)
			s.recvAt = s.sendAt + s.sendRoom
			s.add(i, first, min(n, c.Count-first))
			s.endStep()
			first += n
		}
	}
	s.sendAt, s.recvAt = rooms+stepRooms*(s.sendRoom+s.recvRoom), -1
	if s.together {
		s.writeMessages()
	}
}

// writeMessages makes the messages one step.
func (s *script) writeMessages() {
	first := len(s.calls)
	for i := range s.from {
		if !s.from[i].Kind.P2P() || s.staged[i].toSelf {
			continue
		}
		if s.isRelayed(i) {
			s.addRelayed(i)
			continue
		}
		s.add(i, 0, s.from[i].Count)
		s.relays.skip(len(s.calls) - first)
	}
	s.endStep()
	s.relays.number(s.calls[first:])
}

// writeTogether makes some of the calls one step.
func (s *script) writeTogether(these func(*calls.Call) bool) {
	before := len(s.calls)
	for i := range s.from {
		if these(&s.from[i]) {
			s.add(i, 0, s.from[i].Count)
		}
	}
	if len(s.calls) > before {
		s.endStep()
	}
}

func (s *script) endStep() {
	s.steps = append(s.steps, step{len(s.calls), len(s.outs), len(s.ins)})
}

// add adds n elements of each block of a call to the step, and what they move.
func (s *script) add(i int, first, n uint64) {
	c := s.from[i]
	send, recv := rowsOf(&c, n)
	offset := int(first) * c.Type.Size()
	recvAt := &s.recvAt
	if s.recvAt < 0 {
		recvAt = &s.sendAt
	}
	c.Send = s.locate(&s.outs, send, c.Send, offset, s.staged[i].send, &s.sendAt)
	c.Recv = s.locate(&s.ins, recv, c.Recv, offset, s.staged[i].recv, recvAt)
	piece := c.PieceCount()
	if piece == c.Count {
		s.calls = append(s.calls, c)
		return
	}
	c.Whole = c.Count
	for done := uint64(0); done < n; done += piece { // several only of messages
		p, offset := c, int(done)*c.Type.Size()
		p.Count = min(piece, n-done)
		if send.rows > 0 {
			p.Send = unsafe.Add(c.Send, offset)
		}
		if recv.rows > 0 {
			p.Recv = unsafe.Add(c.Recv, offset)
		}
		s.calls = append(s.calls, p)
	}
}

// locate returns where a step has what begins so far into a call's buffer: where it is, or in staging memory at used.
func (s *script) locate(moves *[]move, m move, buffer unsafe.Pointer, offset int, staged bool, used *int) unsafe.Pointer {
	if m.rows == 0 {
		return buffer
	}
	m.buffer = unsafe.Add(buffer, offset)
	if !staged && !m.strided() {
		return m.buffer
	}
	m.room, m.byCPU = unsafe.Add(s.at, *used), !staged
	*used += m.roomFor()
	*moves = append(*moves, m)
	return m.room
}

// before returns where step k begins.
func (s *script) before(k int) step {
	if k == 0 {
		return step{}
	}
	return s.steps[k-1]
}

// run runs step k: what it sends has been copied from the device. comms is the script's communicator.
func (s *script) run(k int, comms []*comm.Core) error {
	from, to := s.before(k), s.steps[k]
	group := s.calls[from.calls:to.calls]
	if k == 0 {
		s.deadline = calls.DeadlineOf(s.from)
	}
	if !s.deadline.IsZero() && k > 0 {
		for i := range group {
			group[i].Options.Deadline = max(time.Until(s.deadline), 1)
		}
	}
	s.copyOuts(k)
	se := sessions.Get().(*session)
	se.calls, se.comms = group, append(se.comms, comms...)
	if k == len(s.steps)-1 && len(s.relays.all) > 0 {
		se.gate = &s.relays
	}
	err := se.runWhole()
	se.reset()
	sessions.Put(se)
	if err != nil {
		return err
	}
	s.copyIns(k)
	return nil
}

// copyOuts copies what step k sends into staging memory, copyIns what it has received out of it, as far as the CPU does that.
func (s *script) copyOuts(k int) {
	for i := s.before(k).outs; i < s.steps[k].outs; i++ {
		s.outs[i].copyRows(false)
	}
}

func (s *script) copyIns(k int) {
	for i := s.before(k).ins; i < s.steps[k].ins; i++ {
		s.ins[i].copyRows(true)
	}
}

// copyRows copies out of staging memory, or into it, where the CPU can.
func (m *move) copyRows(back bool) {
	if !m.byCPU {
		return
	}
	for i := range m.rows {
		to := memory.Bytes(unsafe.Add(m.room, i*m.width), int64(m.width))
		from := memory.Bytes(unsafe.Add(m.buffer, i*m.pitch), int64(m.width))
		if back {
			to, from = from, to
		}
		copy(to, from)
	}
}

// cut reports whether some of the session's calls are made in pieces.
func (s *session) cut() bool {
	for i := range s.calls {
		if s.calls[i].IsCut() {
			return true
		}
	}
	return false
}

// runInPieces runs calls on host memory that are cut, since other ranks may have theirs in device memory.
func (s *session) runInPieces() error {
	scripts := make([]script, len(s.comms))
	var pieces []calls.Call
	rooms := make([][]byte, len(s.comms))
	strided := false
	for k, c := range s.comms {
		sc := &scripts[k]
		sc.begin(c)
		for i := range s.calls {
			if s.calls[i].Comm == c {
				sc.from, sc.staged = append(sc.from, s.calls[i]), append(sc.staged, stagedBuffers{})
			}
		}
		rooms[k] = make([]byte, sc.measure())
		strided = strided || len(rooms[k]) > 0
		sc.write(unsafe.Pointer(unsafe.SliceData(rooms[k])))
		pieces = append(pieces, sc.calls...)
	}
	if !strided {
		s.calls = pieces
		return s.runWhole()
	}
	errs := make([]error, len(scripts))
	var wg sync.WaitGroup
	for k := range scripts {
		wg.Go(func() {
			for i := range scripts[k].steps {
				if errs[k] = scripts[k].run(i, s.comms[k:k+1]); errs[k] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
