package stream

import (
	"fmt"
	"sync"
	"unsafe"

	"lightpath/collectives/program"
	"lightpath/plans"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/device"
	"lightpath/shim/dispatch"
	"lightpath/shim/log"
	"lightpath/shim/planning"
)

// Issuer puts scripts of a communicator's collectives on streams: messages that a [Wire] moves, lane by lane, with kernels
// of ours between them.
type Issuer struct {
	Options
	c     *comm.Core
	ended chan struct{} // closed when nothing is on streams any more, or the communicator has failed
	gone  chan struct{} // closed when nothing of it is left

	tableMu sync.Mutex // guards what follows
	table   map[calls.Shape]*Scripted
	site    planning.Site // of plans, if there are circuits
	asked   uint64        // number of the last question for a plan
	answers chan *control.Message

	plans plannedScripts // at the leader
	launching
	cross crossings
}

// Options say how scripts are issued.
type Options struct {
	Wire    Wire
	Lanes   int    // one for each plane with circuits; else as many as the wire likes
	Name    string // of the way, for the log
	Without string // says for the log where a shape without a script goes
	Every   bool   // without circuits all shapes have scripts, else those for which an algorithm is chosen
	Bounces bool   // buffers in host memory are copied to the device
	Ordered bool   // scripts keep the order of the communicator's other launches and calls
}

// Wire moves the messages of scripts. Its methods but Check and Stop are called with Issuer.Mu held.
type Wire interface {
	// Prepare finds what a launch needs; nothing is on a stream yet.
	Prepare(l *Launch) error
	// Begin puts on the stream what comes before the launch, after the launch before it.
	Begin(s device.Stream) error
	// Exchange puts the messages of a lane on a stream, as one group. It allocates nothing.
	Exchange(lane int, list []Transfer, s device.Stream) error
	// End puts on the stream what comes after the launch.
	End(s device.Stream) error
	// Alloc returns memory of the device from which the wire sends. The context has been entered.
	Alloc(size int64) (Memory, error)
	// Forget has the wire forget memory.
	Forget(m *Memory)
	// Check returns why the wire has failed, nil if it has not.
	Check() error
	// Stop ends the wire: what it has on streams is over, or has failed with the communicator.
	Stop(failed bool)
	// Free gives back what streams have used that have left it for good.
	Free()
}

// Transfer is one message of a group: Bytes from At to Peer, or the other way round.
type Transfer struct {
	At    unsafe.Pointer
	Bytes int64
	Peer  int32
	Send  bool
}

// Launch is a script on its way to streams.
type Launch struct {
	Call    *calls.Call
	Of      *Scripted
	Capture device.Capture
	Bases   [program.Area + 1]unsafe.Pointer
}

// Scripted is how calls of one shape are issued.
type Scripted struct {
	Script    *program.Script  // nil: they are not
	Plan      *planning.Agreed // nil without circuits
	Algorithm string
	Entry     *dispatch.Entry // for the flight recorder, and errors of calls on circuits
}

var issuerSlot = comm.NewSlot[Issuer]()

// IssuerOf returns the issuer of a communicator, nil if there is none.
func IssuerOf(c *comm.Core) *Issuer { return issuerSlot.Of(c) }

// NewIssuer gives a communicator an issuer. From now on the leader answers ranks that ask for plans.
func NewIssuer(c *comm.Core, o Options) *Issuer {
	in := &Issuer{
		Options: o, c: c, table: map[calls.Shape]*Scripted{}, ended: make(chan struct{}), gone: make(chan struct{}),
		answers: make(chan *control.Message, 4),
	}
	in.prepareLaunches(o.Lanes)
	in.cross.setUp(o.Lanes)
	if p := circuits.Of(c); p != nil {
		in.site = p.WithoutForwarding()
		if c.Rank == 0 {
			live.Of(c).Scripted = in.knownPlan
		}
	}
	issuerSlot.Set(c, in)
	return in
}

// Handle has the leader say which plan a shape has, and ranks take its answers. The communicator may have an issuer, or
// none.
func Handle(c *comm.Core) {
	c.HandleAtLeader(control.MsgPlanAsk, func(m *control.Message) {
		if in := IssuerOf(c); in != nil {
			go in.answer(m)
		}
	})
	c.Handle(control.MsgPlanTold, func(m *control.Message) {
		if in := IssuerOf(c); in != nil {
			in.answered(m)
		}
	})
	c.AddHooks(comm.Hooks{
		Check:  func() { IssuerOf(c).check() },
		Drain:  func() { Drain(c) },
		Closed: func() { IssuerOf(c).close() },
	})
}

// Of returns how a call that has been checked is issued. The first call of a shape on circuits waits for its plan.
func (in *Issuer) Of(call *calls.Call) (*Scripted, error) {
	s := calls.ShapeOf(call)
	s.Request = calls.Request{}
	in.tableMu.Lock()
	defer in.tableMu.Unlock()
	if e := in.table[s]; e != nil {
		return e, nil
	}
	e, err := in.make(s)
	if err != nil {
		return nil, err
	}
	if len(in.table) >= dispatch.MaxPrograms {
		clear(in.table)
	}
	in.table[s] = e
	return e, nil
}

// make makes the script of a shape. If a shape has none, the log says why.
func (in *Issuer) make(s calls.Shape) (*Scripted, error) {
	c := in.c
	coll, optical := calls.Kinds[s.Kind].Collective, circuits.Of(c) != nil
	args := program.Args{
		Rank: c.Rank, Planes: in.Lanes, Count: int64(s.Count), ElemSize: int64(s.Type.Size()), InPlace: s.InPlace,
		Scale: calls.KernelsOf(&s, c.Ranks).Scale != nil,
	}
	e := &Scripted{}
	var plan *plans.Plan
	if optical {
		a, why, err := in.askPlan(s)
		switch {
		case err != nil:
			return nil, err
		case a == nil:
			return in.without(s, why), nil
		}
		e.Plan, plan, args.Problem, args.StepOf = a, a.Plan, a.Problem, a.StepOf
	} else if _, chosen := c.Cfg.Algorithms[coll.String()]; !chosen && !in.Every {
		return in.without(s, "LIGHTPATH_ALGORITHM names no algorithm for it"), nil
	}
	col, err := dispatch.BuildSchedule(&s, c.Ranks, optical, c.Cfg, in.site.Pods)
	if err != nil {
		return nil, err
	}
	p, err := program.Lower(col.Steps, plan, args)
	if err == nil {
		e.Script, err = program.NewScript(p)
	}
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s: %w", s.Kind, col.Algorithm, err)
	}
	e.Algorithm, e.Entry = col.Algorithm, &dispatch.Entry{Prog: p, Algorithm: col.Algorithm, Plan: plan}
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): %s, algorithm %s, %d groups of messages",
		c.Rank, s.Kind, s.Count, s.Type, s.Root, in.Name, col.Algorithm, len(e.Script.Batches))
	return e, nil
}

// without is the entry of a shape that has no script.
func (in *Issuer) without(s calls.Shape, why string) *Scripted {
	in.c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): %s: %s", in.c.Rank, s.Kind, s.Count, s.Type, s.Root, in.Without, why)
	return &Scripted{}
}

// Watch stops the wire when the communicator fails: nothing else ends what it has on streams.
func (in *Issuer) Watch() {
	defer close(in.gone)
	select {
	case <-in.c.FailedChan():
	case <-in.ended:
	}
	in.Wire.Stop(in.c.Failed())
	<-in.ended
	if !in.c.Failed() {
		in.free() // what a communicator that has failed has on streams may still come to its memory
	}
}

// Abandon takes the issuer from its communicator before it has issued anything.
func (in *Issuer) Abandon() {
	issuerSlot.Set(in.c, nil)
	in.Wire.Stop(true)
	close(in.gone)
}

// close ends the issuer of a communicator that has nothing on streams, or has failed, and returns when it has.
func (in *Issuer) close() {
	if in == nil {
		return
	}
	close(in.ended)
	<-in.gone
}

// check fails the communicator if the wire has failed.
func (in *Issuer) check() {
	if in == nil || in.c.Failed() {
		return
	}
	if err := in.Wire.Check(); err != nil {
		in.c.Spread(err)
	}
}
