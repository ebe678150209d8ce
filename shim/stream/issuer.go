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

// Issuer puts scripts of a communicator's collectives on streams. A [Wire] moves the messages, lane by lane, with
// Lightpath's kernels between them.
type Issuer struct {
	Options
	c     *comm.Core
	ended chan struct{} // closed by close: no launch is pending, or the communicator has failed
	gone  chan struct{} // closed when the issuer has ended

	tableMu sync.Mutex // guards the fields below
	table   map[calls.Shape]*Scripted
	site    planning.Site // used to plan, if there are circuits
	asked   uint64        // number of the last request for a plan
	answers chan *control.Message

	plans plannedScripts // used at the leader
	launching
	cross crossings
}

// Options say how scripts are issued.
type Options struct {
	Wire    Wire
	Lanes   int    // one for each plane with circuits; else as many as the wire likes
	Name    string // of the path, for the log
	Without string // where a shape without a script runs, for the log
	// Alone: no other library runs calls. So without circuits all shapes have scripts, not only those with a chosen
	// algorithm, and buffers in host memory are copied to the device.
	Alone bool
}

// Wire moves the messages of scripts. The caller holds Device.Mu, except for Check and Stop.
type Wire interface {
	// Prepare gets what a launch needs. It puts nothing on a stream.
	Prepare(l *Launch) error
	// Begin puts on the stream what precedes the launch. The previous launch comes first.
	Begin(s device.Stream) error
	// Exchange puts the messages of a lane on a stream, as one group. It allocates nothing.
	Exchange(lane int, list []Transfer, s device.Stream) error
	// End puts on the stream what follows the launch.
	End(s device.Stream) error
	// Alloc returns device memory from which the wire sends. The caller has entered the context.
	Alloc(size int64) (Memory, error)
	// Forget deregisters memory.
	Forget(m *Memory)
	// Check returns why the wire has failed, nil if it has not.
	Check() error
	// Stop ends the wire. Its work on streams has completed, or the communicator has failed.
	Stop(failed bool)
	// Free frees the wire's memory. No stream uses it any more.
	Free()
}

// Transfer is one message of a group: Bytes from At to Peer, or the other way round.
type Transfer struct {
	At    unsafe.Pointer
	Bytes int64
	Peer  int32
	Send  bool
}

// Launch is a script while it is put on streams.
type Launch struct {
	Call    *calls.Call
	Of      *Scripted
	Capture device.Capture
	Bases   [program.Area + 1]unsafe.Pointer
}

// Scripted is how calls of one shape are issued.
type Scripted struct {
	Script *program.Script  // nil: without a script
	Plan   *planning.Agreed // nil without circuits
	Entry  *dispatch.Entry  // for the flight recorder, and errors of calls on circuits
}

var issuerSlot = comm.NewSlot[Issuer]()

// IssuerOf returns the issuer of a communicator, nil if there is none.
func IssuerOf(c *comm.Core) *Issuer { return issuerSlot.Of(c) }

// NewIssuer creates a communicator's issuer. From now on the leader answers requests for plans.
func NewIssuer(c *comm.Core, o Options) *Issuer {
	in := &Issuer{
		Options: o, c: c, table: map[calls.Shape]*Scripted{}, ended: make(chan struct{}), gone: make(chan struct{}),
		answers: make(chan *control.Message, 4),
	}
	in.peers, _ = device.Active().(device.Peers)
	in.streams, in.joints = make([]device.Stream, o.Lanes), make([]device.Event, o.Lanes)
	in.cross.setUp(o.Lanes)
	if p := circuits.Of(c); p != nil {
		in.site = p.Site.WithoutForwarding()
		if c.Rank == 0 {
			live.Of(c).Scripted = in.knownPlan
		}
	}
	issuerSlot.Set(c, in)
	return in
}

// Handle makes the leader answer requests for plans, and ranks receive the answers. A communicator without an issuer
// ignores them.
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

// Of returns how to issue a checked call. The first call of a shape on circuits waits for its plan.
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

// HasScript reports whether a checked call has a script. The result depends only on the shape and on values that all
// ranks share, not on memory or streams. The first call of a shape may wait for its plan.
func (in *Issuer) HasScript(call *calls.Call) (bool, error) {
	if call.Kind >= calls.NumKinds || call.Kind.P2P() || call.Count == 0 {
		return false, nil
	}
	e, err := in.Of(call)
	return err == nil && e.Script != nil, err
}

// make makes the script of a shape. If a shape has none, the log says why.
func (in *Issuer) make(s calls.Shape) (*Scripted, error) {
	c := in.c
	coll := calls.Kinds[s.Kind].Collective
	args := program.Args{Planes: in.Lanes}
	e := &Scripted{}
	var plan *plans.Plan
	from := dispatch.PacketsOf(c)
	if circuits.Of(c) != nil {
		from = dispatch.Circuits
		a, why, err := in.askPlan(s)
		switch {
		case err != nil:
			return nil, err
		case a == nil:
			return in.without(s, why), nil
		}
		e.Plan, plan, args.Problem, args.StepOf = a, a.Plan, a.Problem, a.StepOf
	} else if _, chosen := c.Cfg.Algorithms[coll.String()]; !chosen && !in.Alone {
		return in.without(s, "LIGHTPATH_ALGORITHM names no algorithm for it"), nil
	}
	var err error
	if e.Entry, err = dispatch.Lower(c, &s, from, in.site.Pods, plan, args); err != nil {
		return nil, err
	}
	if e.Script, err = program.NewScript(e.Entry.Prog); err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s: %w", s.Kind, e.Entry.Algorithm, err)
	}
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): %s, algorithm %s, %d groups of messages",
		c.Rank, s.Kind, s.Count, s.Type, s.Root, in.Name, e.Entry.Algorithm, len(e.Script.Batches))
	return e, nil
}

// without returns the entry of a shape without a script, and logs why there is none.
func (in *Issuer) without(s calls.Shape, why string) *Scripted {
	in.c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): %s: %s", in.c.Rank, s.Kind, s.Count, s.Type,
		s.Root, in.Without, why)
	return &Scripted{}
}

// Watch stops the wire when the communicator fails, since nothing else ends its work on streams. Then it waits for
// close.
func (in *Issuer) Watch() {
	defer close(in.gone)
	select {
	case <-in.c.FailedChan():
	case <-in.ended:
	}
	in.Wire.Stop(in.c.Failed())
	<-in.ended
	if !in.c.Failed() {
		in.free() // after a failure, streams may still use the memory
	}
}

// Abandon removes the issuer from its communicator, before it has issued anything.
func (in *Issuer) Abandon() {
	issuerSlot.Set(in.c, nil)
	in.Wire.Stop(true)
	close(in.gone)
}

// close ends the issuer and waits for its end. No launch is pending, or the communicator has failed.
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
