package steps

import (
	"time"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/memory"
	"lightpath/shim/session"
)

// List is calls of one communicator, divided into steps. Each step is a group of calls on host memory. Steps take turns
// with two rooms of staging memory: the results of a step can be copied out of one room while the next step's data is
// in the other.
//
// Pieces run one after another, call by call. This order is the same on all ranks, whatever their groups are. Only
// sends and receives of one group may depend on each other across ranks. They are one step, in which long messages move
// independently ([Relay]).
type List struct {
	Comm    *comm.Core
	From    []calls.Call // as they were made, checked
	Staged  []Staged     // by call of From
	Scalars []Scalar

	Relaying bool // long messages of a group may move through two slots each
	Whole    bool // one step, with room for everything
	Steps    []Step
	Calls    []calls.Call // of the steps
	Outs     []Move
	Ins      []Move
	Relays   Relays // of the last step

	together bool // several messages, which are one step
	sendRoom int  // bytes of staging memory in each room for what a step sends,
	recvRoom int  // and for what it receives, which never overlaps the data that another step sends
	deadline time.Time
	at       unsafe.Pointer // the staging memory
	sendAt   int            // how far it is in use
	recvAt   int            // offset of the received data; -1: after the sent data
}

// Staged says which buffers of a call the CPU must have in staging memory.
type Staged struct {
	Send, Recv bool
	ToSelf     bool // the device copies the message itself, from one buffer of the rank to another
}

// Step is where a step ends in the lists. It begins where the one before it ends.
type Step struct{ Calls, Outs, Ins int }

// Scalar is the element of an operator that is in device memory.
type Scalar struct {
	Call         int // of From
	Room, Device unsafe.Pointer
}

// Move is a copy between a buffer, whose rows begin Pitch bytes apart, and staging memory, whose rows are adjacent.
type Move struct {
	Room, Buffer       unsafe.Pointer
	Width, Rows, Pitch int
	ByCPU              bool // the buffer is host memory
}

const (
	// scalarRoom is what an element of an operator takes in staging memory.
	scalarRoom = 8
	// roomAlign aligns buffers in staging memory to a cache line.
	roomAlign = 64
	// Rooms is the number of rooms of staging memory.
	Rooms = 2
)

// Aligned returns the bytes of staging memory for a buffer of size bytes.
func Aligned(size int) int { return (size + roomAlign - 1) &^ (roomAlign - 1) }

// Strided reports whether the rows of the buffer are not adjacent.
func (m *Move) Strided() bool { return m.Rows > 1 && m.Width < m.Pitch }

func (m *Move) room() int { return Aligned(m.Width * m.Rows) }

// rowsOf returns n elements of each block of a call as rows of its buffers.
func rowsOf(c *calls.Call, n uint64) (send, recv Move) {
	if c.Count == 0 || c.Kind.OneSided() {
		return send, recv
	}
	block, width := int(c.Count)*c.Type.Size(), int(n)*c.Type.Size()
	sent, received := c.Extents()
	send = Move{Width: width, Rows: int(sent) / block, Pitch: block}
	recv = Move{Width: width, Rows: int(received) / block, Pitch: block}
	return send, recv
}

// room returns the bytes of staging memory for n elements of each block of a call. Rows of host memory that are not
// adjacent need staging memory, too.
func (l *List) room(i int, n uint64) (sent, received int) {
	send, recv := rowsOf(&l.From[i], n)
	if l.Staged[i].Send || send.Strided() {
		sent = send.room()
	}
	if l.Staged[i].Recv || recv.Strided() {
		received = recv.room()
	}
	return sent, received
}

// Begin empties the list for calls of a communicator. It reuses allocated memory.
func (l *List) Begin(c *comm.Core) {
	l.Comm, l.deadline = c, time.Time{}
	l.From, l.Staged, l.Scalars, l.Relays.Selfs = l.From[:0], l.Staged[:0], l.Scalars[:0], l.Relays.Selfs[:0]
}

// Measure divides the calls into steps, and returns the bytes of staging memory for them. Calls that fit into both
// rooms are one step, unless the ranks have agreed to cut one of them.
func (l *List) Measure() int {
	all, messages, cut := 0, 0, false
	for i := range l.From {
		c := &l.From[i]
		sent, received := l.room(i, c.Count)
		all += sent + received
		if c.Kind.P2P() {
			messages++
		} else {
			cut = cut || c.IsCut()
		}
	}
	l.together, l.sendRoom, l.recvRoom = messages > 1, 0, 0
	for i := range l.From {
		if c := &l.From[i]; !c.Kind.P2P() || !l.together {
			sent, received := l.room(i, c.PieceCount())
			l.sendRoom, l.recvRoom = max(l.sendRoom, sent), max(l.recvRoom, received)
			cut = cut || c.IsCut()
		}
	}
	limit := calls.FactsOf(l.Comm).Cut
	if l.Whole = !cut && (limit == 0 || int64(all) <= 2*Rooms*limit); l.Whole {
		return l.scalarsRoom() + all
	}
	l.matchSelf()
	return l.scalarsRoom() + Rooms*(l.sendRoom+l.recvRoom) + l.messagesRoom()
}

func (l *List) scalarsRoom() int { return Aligned(scalarRoom * len(l.Scalars)) }

// messagesRoom returns the bytes of staging memory for messages that are one step.
func (l *List) messagesRoom() (size int) {
	for i := range l.From {
		c := &l.From[i]
		switch {
		case !l.together || !c.Kind.P2P() || l.Staged[i].ToSelf:
		case l.isRelayed(i):
			size += RelaySlots * Aligned(pieceBytes(c))
		default:
			sent, received := l.room(i, c.Count)
			size += sent + received
		}
	}
	return size
}

// Write makes the steps, with staging memory at an address. Its size is the result of [List.Measure].
func (l *List) Write(at unsafe.Pointer) {
	l.at = at
	l.Steps, l.Calls, l.Outs, l.Ins = l.Steps[:0], l.Calls[:0], l.Outs[:0], l.Ins[:0]
	l.Relays.begin()
	for i := range l.Scalars {
		x := &l.Scalars[i]
		x.Room = unsafe.Add(at, scalarRoom*i)
		l.From[x.Call].Scalar = x.Room
	}
	l.sendAt, l.recvAt = l.scalarsRoom(), -1
	if l.Whole {
		l.writeTogether(func(*calls.Call) bool { return true })
		return
	}
	l.writeTogether(func(c *calls.Call) bool { return c.Kind.OneSided() }) // they stage nothing
	rooms := l.sendAt
	for i := range l.From {
		if k := l.From[i].Kind; !k.OneSided() && !k.P2P() {
			l.addSteps(i, rooms)
		}
	}
	for i := range l.From { // a single message comes last, too: other ranks may have several
		if l.From[i].Kind.P2P() && !l.together {
			l.addSteps(i, rooms)
		}
	}
	l.sendAt, l.recvAt = rooms+Rooms*(l.sendRoom+l.recvRoom), -1
	if l.together {
		l.writeMessages()
	}
}

// addSteps makes each piece of a call a step. The rooms of staging memory begin at byte rooms, and take turns.
func (l *List) addSteps(i, rooms int) {
	c := &l.From[i]
	n, first := c.PieceCount(), uint64(0)
	for more := true; more; more = first < c.Count {
		l.sendAt = rooms + (l.sendRoom+l.recvRoom)*(len(l.Steps)%Rooms)
		l.recvAt = l.sendAt + l.sendRoom
		l.add(i, first, min(n, c.Count-first))
		l.endStep()
		first += n
	}
}

// writeMessages makes the messages one step.
func (l *List) writeMessages() {
	first := len(l.Calls)
	for i := range l.From {
		if !l.From[i].Kind.P2P() || l.Staged[i].ToSelf {
			continue
		}
		if l.isRelayed(i) {
			l.addRelayed(i)
			continue
		}
		l.add(i, 0, l.From[i].Count)
		l.Relays.skip(len(l.Calls) - first)
	}
	l.endStep()
	l.Relays.number(l.Calls[first:])
}

// writeTogether makes some of the calls one step.
func (l *List) writeTogether(these func(*calls.Call) bool) {
	before := len(l.Calls)
	for i := range l.From {
		if these(&l.From[i]) {
			l.add(i, 0, l.From[i].Count)
		}
	}
	if len(l.Calls) > before {
		l.endStep()
	}
}

func (l *List) endStep() { l.Steps = append(l.Steps, Step{len(l.Calls), len(l.Outs), len(l.Ins)}) }

// add adds n elements of each block of a call to the step, and their copies.
func (l *List) add(i int, first, n uint64) {
	c := l.From[i]
	send, recv := rowsOf(&c, n)
	offset := int(first) * c.Type.Size()
	recvAt := &l.recvAt
	if l.recvAt < 0 {
		recvAt = &l.sendAt
	}
	c.Send = l.place(&l.Outs, send, c.Send, offset, l.Staged[i].Send, &l.sendAt)
	c.Recv = l.place(&l.Ins, recv, c.Recv, offset, l.Staged[i].Recv, recvAt)
	piece := c.PieceCount()
	if piece == c.Count {
		l.addCall(c)
		return
	}
	c.Whole = c.Count
	for done := uint64(0); done < n; done += piece { // several only of messages
		p, offset := c, int(done)*c.Type.Size()
		p.Count = min(piece, n-done)
		if send.Rows > 0 {
			p.Send = unsafe.Add(c.Send, offset)
		}
		if recv.Rows > 0 {
			p.Recv = unsafe.Add(c.Recv, offset)
		}
		l.addCall(p)
	}
}

// addCall adds part of a call, or a call with staging memory as its buffers.
func (l *List) addCall(c calls.Call) {
	_ = c.Resolve() // cannot fail: its buffers overlap as those of the call do, or not at all
	l.Calls = append(l.Calls, c)
}

// place returns the address at which a step has part of a call's buffer: in the buffer, or in staging memory at used.
func (l *List) place(moves *[]Move, m Move, buffer unsafe.Pointer, offset int, staged bool, used *int) unsafe.Pointer {
	if m.Rows == 0 {
		return buffer
	}
	m.Buffer = unsafe.Add(buffer, offset)
	if !staged && !m.Strided() {
		return m.Buffer
	}
	m.Room, m.ByCPU = unsafe.Add(l.at, *used), !staged
	*used += m.room()
	*moves = append(*moves, m)
	return m.Room
}

// Before returns where step k begins.
func (l *List) Before(k int) Step {
	if k == 0 {
		return Step{}
	}
	return l.Steps[k-1]
}

// Run runs step k. Its data has been copied from the device.
func (l *List) Run(k int) error {
	from, to := l.Before(k), l.Steps[k]
	group := l.Calls[from.Calls:to.Calls]
	if k == 0 {
		l.deadline = calls.DeadlineOf(l.From)
	}
	if !l.deadline.IsZero() && k > 0 {
		for i := range group {
			group[i].Options.Deadline = max(time.Until(l.deadline), 1)
		}
	}
	l.CopyOuts(k)
	s := session.New(group, l.Comm)
	if k == len(l.Steps)-1 && len(l.Relays.All) > 0 {
		s.Memory = &l.Relays
	}
	err := s.Run()
	s.Close()
	if err != nil {
		return err
	}
	l.CopyIns(k)
	return nil
}

// CopyOuts copies the data that step k sends from host memory to staging memory.
func (l *List) CopyOuts(k int) {
	for i := l.Before(k).Outs; i < l.Steps[k].Outs; i++ {
		l.Outs[i].copyRows(false)
	}
}

// CopyIns copies the data that step k has received from staging memory to host memory.
func (l *List) CopyIns(k int) {
	for i := l.Before(k).Ins; i < l.Steps[k].Ins; i++ {
		l.Ins[i].copyRows(true)
	}
}

// copyRows copies from host memory to staging memory or, if back is set, in the opposite direction.
func (m *Move) copyRows(back bool) {
	if !m.ByCPU {
		return
	}
	for i := range m.Rows {
		to := memory.Bytes(unsafe.Add(m.Room, i*m.Width), int64(m.Width))
		from := memory.Bytes(unsafe.Add(m.Buffer, i*m.Pitch), int64(m.Width))
		if back {
			to, from = from, to
		}
		copy(to, from)
	}
}
