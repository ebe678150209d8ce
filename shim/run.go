package shim

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/collectives/sharedmem"
	"lightpath/collectives/transport"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/shares"
	"lightpath/shim/stall"
)

// Run runs calls as one group and returns when all are complete, or with [errdefs.ErrInProgress] where
// their communicators do not block; they are all of one kind. Calls on streams or device memory run when the
// streams come to them, and Run returns before. Calls of one communicator
// keep their order, except that its one-sided calls come first, and its sends and receives are merged
// into one exchange after its collectives; different communicators progress at the same time. All calls are
// checked before any has an effect. Hot path: a group of shapes seen before allocates
// nothing on packet planes.
func Run(group []calls.Call) error {
	for i := range group {
		if err := calls.Check(&group[i]); err != nil {
			return err
		}
	}
	if anySwitched(group) {
		return runInTurns(group)
	}
	return runTogether(group, false)
}

// runTogether is Run for calls that all go the same way, where circuits reach the memory of devices.
func runTogether(calls []calls.Call, scripted bool) error {
	if hasPeers(calls, scripted) {
		return runOnPeers(calls, scripted)
	}
	return runHere(calls)
}

// runHere runs calls that do not go through the memory of devices.
func runHere(group []calls.Call) error {
	if streams, err := onStreams(group); err != nil {
		return err
	} else if streams && interposerOf(group[0].Comm).forOther() {
		return interpose(group)
	} else if streams {
		return enqueue(group)
	}
	awaitLaunches(group)
	if len(group) == 1 {
		if c := &group[0]; !c.Comm.NonBlocking && circuits.Of(c.Comm) == nil && c.Options == (calls.Options{}) && throughArena(c.Comm, c.Kind) && !c.IsCut() {
			return runAlone(c.Comm, group)
		}
	}
	s := sessions.Get().(*session)
	err := s.run(group)
	s.reset()
	sessions.Put(s)
	return err
}

// session is the state of one Run, pooled.
type session struct {
	calls []calls.Call
	comms []*comm.Core // in the order of their locks
	tasks []*exec.Task
	refs  []taskRef    // of tasks
	sided []calls.Call // the one-sided calls
	// sidedFlights are their numbers in the flight recorder; 0: not begun.
	sidedFlights []uint64
	rest         []calls.Call // the others, where there are both
	gate         exec.Gate    // of the messages, nil: none
	cross        *crossing    // whose call this is; nil: none
	opts         exec.Options
}

// taskRef is what a task does, for messages and for what follows it.
type taskRef struct {
	comm     *comm.Core
	call     int // index of the (first) call
	seq      uint64
	sig      uint32
	entry    *dispatch.Entry // collectives only
	op       *sharedmem.Op   // where it goes through the arena
	finishR  exec.Buffer     // result to divide
	circuits bool            // sends and receives on the planes with circuits
	flight   uint64          // its number in the flight recorder
}

var sessions = sync.Pool{New: func() any {
	s := &session{}
	s.opts.OnStall = s.stalled
	return s
}}

func (s *session) reset() {
	clear(s.comms)
	clear(s.tasks)
	clear(s.refs)
	clear(s.sided)
	clear(s.rest)
	s.sided, s.rest = s.sided[:0], s.rest[:0]
	s.gate, s.cross = nil, nil
	s.calls, s.comms, s.tasks, s.refs = nil, s.comms[:0], s.tasks[:0], s.refs[:0]
	s.opts.Deadline = time.Time{}
}

func (s *session) run(calls []calls.Call) error {
	s.calls = calls
	for i := range calls {
		if !slices.Contains(s.comms, calls[i].Comm) {
			s.comms = append(s.comms, calls[i].Comm)
		}
	}
	if len(s.comms) > 0 && s.comms[0].NonBlocking || len(s.comms) > 1 {
		if background, err := s.nonBlocking(); background || err != nil {
			return err
		}
	}
	return s.runAll()
}

// runAll runs the calls, which have been checked.
func (s *session) runAll() error {
	if s.cut() {
		return s.runInPieces()
	}
	return s.runWhole()
}

// runWhole is runAll for calls none of which is cut.
func (s *session) runWhole() error {
	s.takeOneSided(s.calls)
	s.opts.Deadline = calls.DeadlineOf(s.calls)
	// One order of locks for all threads, whatever order their groups name
	// communicators in.
	slices.SortFunc(s.comms, bySerial)
	for _, c := range s.comms {
		c.Turn.Lock()
	}
	err := s.runLocked()
	for _, c := range s.comms {
		c.Turn.Unlock()
	}
	return err
}

func bySerial(a, b *comm.Core) int {
	if a.Serial < b.Serial {
		return -1
	}
	return 1
}

func (s *session) runLocked() error {
	for _, c := range s.comms {
		// While this thread waited for the lock another may have failed or destroyed it.
		if err := c.Sound(); err != nil {
			return err
		}
	}
	if err := s.runOneSided(); err != nil {
		return err
	}
	if len(s.calls) == 0 {
		return nil
	}
	if slices.ContainsFunc(s.comms, func(c *comm.Core) bool { return circuits.Of(c) != nil }) {
		return s.runMixed()
	}
	for _, c := range s.comms {
		if err := s.bind(c); err != nil {
			return err
		}
	}
	return s.drive()
}

// bind prepares the tasks of all calls of c on the packet planes.
func (s *session) bind(c *comm.Core) error {
	hostOf(c).begin()
	for i := range s.calls {
		if call := &s.calls[i]; call.Comm == c && !call.Kind.P2P() {
			if err := s.bindPacket(c, i); err != nil {
				return err
			}
		}
	}
	first, err := s.gather(c)
	if err != nil || first < 0 {
		return err
	}
	return s.bindMessages(c, first)
}

// bindPacket prepares the task of a collective on the packet planes.
func (s *session) bindPacket(c *comm.Core, i int) error {
	call := &s.calls[i]
	if err := call.Resolve(); err != nil {
		return err
	}
	sh := calls.ShapeOf(call)
	ref := taskRef{comm: c, call: i, sig: sh.Signature()}
	if call.Count == 0 {
		hostOf(c).skip(&sh)
		return nil
	}
	e, err := packetEntry(c, sh)
	if err != nil {
		return c.Fail(err) // the other ranks may have begun
	}
	ref.entry = e
	ref.seq, ref.flight = hostOf(c).next(&sh, e)
	return s.bindPacketEntry(ref)
}

// bindPacketEntry binds what packetEntry has returned.
func (s *session) bindPacketEntry(ref taskRef) error {
	if ref.entry.Prog == nil {
		return s.bindArena(ref)
	}
	return s.bindEntry(ref, nil, nil)
}

// bindEntry binds a program to its call and appends the task. p is nil on packet planes. switchAt is when the planes
// move, nil if the ranks decide that.
func (s *session) bindEntry(ref taskRef, p *circuits.Planes, switchAt [][]int64) error {
	c, call := ref.comm, &s.calls[ref.call]
	send, recv := call.Extents()
	k := &ref.entry.Kernels
	scale, factor := k.Scaling(call)
	ec := exec.Call{
		Program: ref.entry.Prog, Reduce: k.Reduce, Scale: scale, Factor: factor,
		Comm: c.ID, Op: ref.seq, Endpoint: hostOf(c).packet, Poison: c.Poison(),
	}
	ec.Buffers[schedule.Input] = exec.Buffer{Ptr: call.Send, Len: send}
	ec.Buffers[schedule.Output] = exec.Buffer{Ptr: call.Recv, Len: recv}
	ec.Buffers[schedule.Scratch] = hostOf(c).scratchFor(ref.entry.Prog.ScratchBytes)
	if p != nil {
		ec.Endpoint, ec.OCS, ec.Base, ec.SwitchAt, ec.SkipDrain = p.End, p.Switches(), p.Base(), switchAt, p.SkipDrain
	}
	if k.Div != nil {
		ref.finishR = ec.Buffers[schedule.Output]
	}
	t := hostOf(c).task()
	t.Trace(p != nil && recorder.Of(c).Timed)
	t.Pace(ref.entry.Brings != nil)
	if err := t.Bind(ec); err != nil {
		return c.Fail(err)
	}
	s.tasks, s.refs = append(s.tasks, t), append(s.refs, ref)
	return nil
}

// gather merges the sends and receives of c into one program on packet planes, and returns the
// first of them, -1 where there are none.
func (s *session) gather(c *comm.Core) (first int, err error) {
	first = -1
	r := &hostOf(c).runner
	r.sends, r.recvs, r.msgs, r.recvBufs = r.sends[:0], r.recvs[:0], r.msgs[:0], r.recvBufs[:0]
	for i := range s.calls {
		call := &s.calls[i]
		if call.Comm != c || !call.Kind.P2P() {
			continue
		}
		if first < 0 {
			first = i
		}
		if err := call.Resolve(); err != nil {
			return first, err
		}
		send, recv := call.Extents()
		whole := int64(call.Whole) * int64(call.Type.Size())
		if call.Kind == calls.Send {
			r.sends = append(r.sends, program.Message{Peer: int(call.Peer), Bytes: send, Whole: whole})
			r.msgs = append(r.msgs, exec.Buffer{Ptr: call.Send, Len: send})
		} else {
			r.recvs = append(r.recvs, program.Message{Peer: int(call.Peer), Bytes: recv, Whole: whole})
			r.recvBufs = append(r.recvBufs, exec.Buffer{Ptr: call.Recv, Len: recv})
		}
	}
	if first < 0 {
		return first, nil
	}
	r.msgs = append(r.msgs, r.recvBufs...)
	args := program.P2PArgs{Rank: c.Rank, Ranks: c.Ranks, Planes: len(hostOf(c).packet.Planes())}
	if err := program.BuildP2P(&r.p2p, args, r.sends, r.recvs); err != nil {
		return first, s.calls[first].Misuse(err)
	}
	r.group = r.flight.AddGroup(r.sends, r.recvs)
	return first, nil
}

// bindMessages prepares the task of the sends and receives that have been gathered, of which call
// first is the first, on packet planes.
func (s *session) bindMessages(c *comm.Core, first int) error {
	r := &hostOf(c).runner
	t := hostOf(c).task()
	t.Trace(false)
	t.Pace(false)
	err := t.Bind(exec.Call{
		Program: &r.p2p, Messages: r.msgs, Comm: c.ID, Op: r.seq, Pairs: r.pairs, Gate: s.gate, Endpoint: hostOf(c).packet, Poison: c.Poison(),
	})
	if err != nil {
		return c.Fail(err)
	}
	s.tasks = append(s.tasks, t)
	s.refs = append(s.refs, taskRef{comm: c, call: first, seq: r.seq, flight: r.group})
	return nil
}

// drive runs the tasks that have been bound, and what follows them.
func (s *session) drive() error {
	if len(s.tasks) == 0 {
		return nil
	}
	s.policy()
	err := exec.Run(s.tasks, &s.opts)
	if err != nil {
		return s.failed(err)
	}
	s.ended()
	return nil
}

// ended does what follows the tasks.
func (s *session) ended() {
	for i := range s.refs {
		if r := &s.refs[i]; r.entry != nil && r.entry.Brings != nil {
			shares.Of(r.comm).Measure(r.comm, s.tasks[i], r.entry.Brings)
		}
		s.refs[i].record(s.tasks[i])
		s.refs[i].finish()
	}
}

// record has the flight recorder take what the task has done on planes with circuits.
func (r *taskRef) record(t *exec.Task) {
	if p := circuits.Of(r.comm); p != nil && (r.circuits || r.entry != nil && r.entry.Plan != nil) {
		recorder.Of(r.comm).Traced(r.flight, t, p.Base())
	}
}

// finish does what follows a task.
func (r *taskRef) finish() {
	if e := r.entry; e != nil && e.Kernels.Div != nil {
		e.Kernels.Div(memory.Bytes(r.finishR.Ptr, r.finishR.Len), int64(r.comm.Ranks))
	}
	recorder.Of(r.comm).End(r.flight, recorder.Completed)
}

// policy sets how to wait. A yield to other processes costs some 0.3 us where none wants
// the CPU, a wake-up 30: so ranks yield long before they sleep, also where each could have a
// CPU, for the system may have put two on one. Where ranks outnumber CPUs whoever waits
// is in the way of the one waited for, and spinning only delays both.
func (s *session) policy() {
	s.opts.Timeout, s.opts.Alone = 0, true
	for _, c := range s.comms {
		if s.opts.Timeout == 0 || c.Cfg.Timeout < s.opts.Timeout {
			s.opts.Timeout = c.Cfg.Timeout
		}
		s.opts.Alone = s.opts.Alone && c.SoleRank
	}
	c, ref := s.comms[0], &s.refs[0]
	lit := ref.circuits || ref.entry != nil && ref.entry.Plan != nil
	s.opts.Brief = 0
	if c.LocalRanks <= runtime.NumCPU() {
		s.opts.Spin, s.opts.Yield = 64, 2000
		switch e := ref.entry; {
		case e != nil && e.Prog == nil:
			s.opts.Spin = 0 // runAlone has
		case !lit:
			s.opts.Brief = 16 // about as long as a wake-up takes
		}
	} else {
		s.opts.Spin, s.opts.Yield = 1, 200
		if lit {
			// A frame takes the emulated wire far longer than a wake-up takes, and the switch
			// itself needs the cores.
			s.opts.Spin, s.opts.Yield = 0, 0
		}
	}
	if c.Cfg.Spin >= 0 {
		s.opts.Spin, s.opts.Brief = c.Cfg.Spin, 0
	}
}

// failed turns what ended exec.Run into the error of the group, and fails every
// communicator whose task did not finish: its ranks are in the middle of something.
func (s *session) failed(err error) error {
	result := err
	for i := range s.refs {
		if op := s.refs[i].op; op != nil {
			op.Abandon()
		}
	}
	for i, t := range s.tasks {
		if t.Err() != nil {
			result = s.explain(&s.refs[i], t.Err())
		}
	}
	for i, t := range s.tasks {
		if !t.Done() && t.Err() == nil {
			recorder.Of(s.refs[i].comm).End(s.refs[i].flight, recorder.Failed)
			s.refs[i].comm.Spread(result)
		}
	}
	return result
}

// verdictWait is how long a rank whose operation has failed waits for somebody who knows more.
const verdictWait = 3 * time.Second

// explain fails the communicator of a task. Where ranks disagree or one is missing, the
// leader knows more than this rank does, and gets the first word.
func (s *session) explain(ref *taskRef, err error) error {
	c := ref.comm
	recorder.Of(c).End(ref.flight, recorder.Failed)
	var wait time.Duration
	switch {
	case c.AsyncError() != nil:
	case errors.Is(err, transport.ErrPeerLost):
		// Why the peer is gone comes by the control network.
		wait = verdictWait
	case ref.circuits && errors.Is(err, exec.ErrTimeout):
		err = fmt.Errorf("%w; %s", err, circuits.Of(c).Waiting())
	case ref.entry == nil: // sends and receives concern two ranks, which the error names
	case errors.Is(err, exec.ErrSignature):
		stall.Report(c, ref.seq, ref.sig, s.calls[ref.call].String())
		wait = verdictWait
	case errors.Is(err, exec.ErrSequence):
		// A frame of an operation that this rank has left behind: its sender calls it
		// something else. Which one, the leader finds out.
		for seq := ref.seq; seq > 0 && seq+8 > ref.seq; seq-- {
			if sh, ok := recorder.Of(c).Find(seq); ok {
				stall.ReportShape(c, seq, &sh)
			}
		}
		wait = verdictWait
	case errors.Is(err, exec.ErrTimeout) && ref.entry.Plan != nil:
		// With a ticket everyone has arrived. What matters is whom the switches wait for.
		err = fmt.Errorf("%w; %s", err, circuits.Of(c).Waiting())
	case errors.Is(err, exec.ErrTimeout):
		stall.GiveUp(c, ref.seq, ref.sig, s.calls[ref.call].String(), err)
		wait = verdictWait
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-c.FailedChan():
		case <-timer.C:
		}
	}
	return c.Fail(err)
}

// stalled tells the leaders what this rank is waiting in, and the flight recorders for what.
func (s *session) stalled([]*exec.Task) error {
	var said *comm.Core // the first of its tasks is the one that waits
	for i, t := range s.tasks {
		ref := &s.refs[i]
		if w, ok := t.Blocked(); ok && !t.Done() && ref.comm != said {
			said = ref.comm
			recorder.Of(ref.comm).Stalled(ref.flight, w)
		}
		// Sends and receives have no number that ranks could compare.
		if !t.Done() && ref.entry != nil {
			stall.Report(ref.comm, ref.seq, ref.sig, s.calls[ref.call].String())
		}
	}
	return nil
}
