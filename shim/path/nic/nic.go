package nic

import (
	"errors"
	"slices"
	"sync"
	"unsafe"

	"lightpath/collectives/program"
	"lightpath/collectives/transport/messages"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/stream"
)

// Path is the state of a communicator whose ports, or devices of a plugin, access its device's memory: see
// docs/design/nic-memory.md. A [stream.Issuer] puts the scripts of collectives on streams. Path is its wire: messages
// go from memory of one device to memory of another. Device.Mu guards Path unless said otherwise.
type Path struct {
	c      *comm.Core
	driver device.Remote
	ctx    device.Context
	// circuits: lanes are planes whose circuits switch. Collectives without a plan, sends and receives are staged.
	circuits bool
	ends     ends
	end      messages.Endpoint
	access   access
	in       *stream.Issuer
	own      device.Stream // for calls without a stream
	ended    memory.Pinned // its word is the number of the last completed launch outside graphs
	calls    uint64        // collectives called

	launch launch
	group  group
	memory registered
	work   work
}

// access is how the ends reach device memory.
type access struct {
	device.RemoteAccess
	byAddress bool // the ends register it by its address, and not as a dma-buf
	flush     bool // streams see received data only after FlushRemote
}

// launch is what is being put on streams.
type launch struct {
	number  uint32
	tag     uint32 // of its messages
	capture device.Capture
	replay  *replay // nil: the launch is in no graph, or uses circuits
}

// group is the sends and receives of one Put.
type group struct {
	msgs         []message
	streams      []device.Stream
	list         []stream.Transfer // of one lane
	sent, wanted []uint64          // messages so far to and from each rank
}

// message is a send or receive of a group.
type message struct {
	stream.Transfer
	number uint64 // among the messages from this sender to this receiver
}

var slot = comm.NewSlot[Path]()

// algorithm is the name of this path in the log and in traces.
const algorithm = "gpudirect-rdma"

// registered is the device memory that is registered with the ports.
type registered struct {
	mu      sync.Mutex
	regions []messages.Region // guarded by mu

	rooms []stream.Memory // by lane, for messages in memory that is not registered
	piece int64           // bytes of a message that a round moves
}

// Put puts the calls of x's communicator in a group on streams: first its collectives in order, then its sends and
// receives together. here says that the calls have no stream: Put gives them one. The caller holds Device.Mu.
func (x *Path) Put(calls []calls.Call, here bool) error {
	if err := x.check(calls, here); err != nil {
		return err
	}
	for i := range calls {
		if call := &calls[i]; call.Comm == x.c && !call.Kind.P2P() {
			if err := x.collective(call); err != nil {
				return err
			}
		}
	}
	if len(x.group.msgs) == 0 {
		return nil
	}
	return x.messages()
}

// check gathers the sends and receives of a group. It refuses wrong calls before any call has an effect.
func (x *Path) check(calls []calls.Call, here bool) error {
	x.group.msgs, x.group.streams = x.group.msgs[:0], x.group.streams[:0]
	for i := range calls {
		call := &calls[i]
		if call.Comm != x.c {
			continue
		}
		if here {
			call.Stream = x.own
		}
		var err error
		switch {
		case call.Kind.P2P():
			err = x.addMessage(call)
		case len(calls) > 1: // alone, it is checked when it is put
			err = x.checkCollective(call)
		}
		if err != nil {
			return err
		}
	}
	return x.matchOwn()
}

// checkCollective refuses a collective that has no script or whose buffers are wrong.
func (x *Path) checkCollective(call *calls.Call) error {
	if call.Count == 0 {
		return nil
	}
	if _, err := x.in.Of(call); err != nil {
		return err
	}
	_, _, err := stream.LocateBuffers(call)
	return err
}

// collective puts a collective on its stream.
func (x *Path) collective(call *calls.Call) error {
	sh := calls.ShapeOf(call)
	if call.Count == 0 {
		x.calls++
		recorder.Of(x.c).End(recorder.Of(x.c).Add(x.calls, &sh, nil), recorder.Completed)
		return nil
	}
	e, err := x.in.Of(call)
	if err != nil {
		return err
	}
	x.launch.tag = program.Signature(uint64(sh.Signature()), x.calls+1)
	x.nextNumber()
	if err := x.in.Issue(e, call); err != nil {
		return err
	}
	x.calls++
	if x.launch.capture.ID == 0 && !x.circuits { // otherwise replays and crossings are recorded, each as it runs
		x.launched(recorder.Of(x.c).Add(x.calls, &sh, e.Entry))
	}
	return nil
}

// nextNumber numbers the next launch.
func (x *Path) nextNumber() {
	if x.launch.number++; x.launch.number == 0 {
		x.launch.number = 1
	}
}

// launched tells the flight recorder of the last launch.
func (x *Path) launched(flight uint64) {
	recorder.Of(x.c).Launched([]uint64{flight}, x.launch.number, false)
}

// addMessage adds a send or receive to the group.
func (x *Path) addMessage(call *calls.Call) error {
	send, recv := call.Extents()
	t := stream.Transfer{At: call.Recv, Bytes: max(send, recv), Peer: call.Peer, Send: call.Kind == calls.Send}
	if t.Send {
		t.At = call.Send
	}
	if _, _, err := stream.LocateBuffers(call); err != nil {
		return err
	}
	if !slices.Contains(x.group.streams, call.Stream) {
		x.group.streams = append(x.group.streams, call.Stream)
	}
	x.group.msgs = append(x.group.msgs, message{Transfer: t})
	return nil
}

// messages puts the group's sends and receives on the first stream and on the lanes' streams. The first stream waits
// for the group's other streams, and these wait for the messages.
func (x *Path) messages() error {
	s := x.group.streams[0]
	err := x.c.Healthy()
	if err != nil {
		return err
	}
	if x.launch.capture, err = stream.Capturing(x.c, x.group.streams); err != nil {
		return err
	}
	if err := stream.Enter(x.c, s); err != nil {
		return err
	}
	defer device.Active().Leave()
	count := x.countMessages()
	err = x.in.PrepareLanes(x.in.Lanes)
	if err == nil {
		err = x.reserveMessages()
	}
	if err == nil {
		x.nextNumber()
		err = x.record(recorder.Called{MessageCount: count})
	}
	if err == nil {
		err = x.putMessages(s)
	}
	if err != nil {
		return x.c.Fail(err) // the other ranks wait for this one, and part of the messages may be on streams
	}
	if x.launch.capture.ID == 0 {
		x.launched(recorder.Of(x.c).AddMessages(count))
	}
	return nil
}

// countMessages numbers the messages and counts them. The number decides over which lanes a message goes.
func (x *Path) countMessages() (n recorder.MessageCount) {
	for i := range x.group.msgs {
		m := &x.group.msgs[i]
		n.Bytes += m.Bytes
		count, of := &n.Recvs, x.group.wanted
		if m.Send {
			count, of = &n.Sends, x.group.sent
		}
		*count++
		m.number = of[m.Peer]
		of[m.Peer]++
	}
	return n
}

// putMessages puts the messages on streams, after the communicator's last launch and after the work on the group's
// other streams.
func (x *Path) putMessages(s device.Stream) error {
	in := x.in
	if err := in.Follow(s, x.launch.capture); err != nil {
		return err
	}
	if err := stream.Of(x.c).Join(s, x.group.streams[1:]); err != nil {
		return err
	}
	if err := x.copyOwn(s); err != nil {
		return err
	}
	if err := in.Fork(s); err != nil {
		return err
	}
	x.launch.tag = program.Signature(uint64(calls.Send))
	for j := range in.Lanes {
		if err := x.putLane(j, s); err != nil {
			return err
		}
	}
	return in.End(s, x.group.streams[1:], x.launch.capture)
}

// putLane puts the messages of a lane on its stream, which forks from s and joins it again.
func (x *Path) putLane(j int, s device.Stream) error {
	x.group.list = x.group.list[:0]
	for i := range x.group.msgs {
		if t := x.partOf(&x.group.msgs[i], j); t.Peer >= 0 {
			x.group.list = append(x.group.list, t)
		}
	}
	if len(x.group.list) == 0 {
		return nil
	}
	on, err := x.in.Lane(j, s)
	if err != nil {
		return err
	}
	if err := x.Exchange(j, x.group.list, on); err != nil || j == 0 {
		return err
	}
	return x.in.JoinLane(j, s)
}

// leastPart is the fewest bytes of a message that use a lane of their own.
const leastPart = 64 << 10

// partOf returns the part of a message that goes over a lane. If none does, its peer is -1. Large messages are divided
// evenly. Small messages take the lanes in turn. Both ends compute the same lanes.
func (x *Path) partOf(m *message, lane int) stream.Transfer {
	t, lanes := m.Transfer, int64(x.in.Lanes)
	switch {
	case int(m.Peer) == x.c.Rank:
		t.Peer = -1
	case m.Bytes >= lanes*leastPart:
		part := roomOfPiece((m.Bytes + lanes - 1) / lanes)
		from := min(part*int64(lane), m.Bytes)
		t.At, t.Bytes = unsafe.Add(m.At, from), min(part, m.Bytes-from)
	case m.number%uint64(lanes) != uint64(lane):
		t.Peer = -1
	}
	return t
}

// nextOwn returns this rank's next send to itself, or its next receive from itself, at or after a position. It returns
// nil if there is none.
func (x *Path) nextOwn(at *int, send bool) *message {
	for ; *at < len(x.group.msgs); *at++ {
		if m := &x.group.msgs[*at]; m.Send == send && int(m.Peer) == x.c.Rank {
			*at++
			return m
		}
	}
	return nil
}

// matchOwn checks that this rank's sends to itself match its receives from itself.
func (x *Path) matchOwn() error {
	for s, r := 0, 0; ; {
		from, to := x.nextOwn(&s, true), x.nextOwn(&r, false)
		switch {
		case from == nil && to == nil:
			return nil
		case from == nil || to == nil || from.Bytes != to.Bytes:
			call := calls.Call{Comm: x.c, Kind: calls.Send, Peer: int32(x.c.Rank)}
			return call.Misuse(errors.New("a rank that sends to itself must receive as much in the same group"))
		}
	}
}

// copyOwn puts the copies of this rank's messages to itself on a stream.
func (x *Path) copyOwn(s device.Stream) error {
	for i, k := 0, 0; ; {
		from, to := x.nextOwn(&i, true), x.nextOwn(&k, false)
		if from == nil {
			return nil
		}
		if from.Bytes > 0 && from.At != to.At {
			if err := device.Active().Copy(to.At, from.At, int(from.Bytes), s); err != nil {
				return err
			}
		}
	}
}
