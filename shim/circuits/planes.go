package circuits

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/collectives/transport"
	"lightpath/plans/circuit"
	"lightpath/shim/arbiter/sequence"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/dispatch"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/status"
	"lightpath/shim/topology"
)

// Planes is a rank's side of the planes with circuits, an [exec.Switch]. Maps connect ranks of the communicator unless
// said otherwise. The communicator's turn guards all fields that have no lock of their own.
type Planes struct {
	Site       planning.Site         // plans for the planes
	Machine    *Machine              // decides this rank's side of operations
	Controller *endpoints.Controller // moves the planes
	End        transport.Endpoint
	HCAs       topology.HCAs  // for planes of RDMA ports
	Known      planning.Known // plans that tickets may name

	c      *comm.Core
	closed sync.Once
	waking sync.Mutex // End is open while it is held, unless ended
	ended  bool
	uses   uses
}

var slot = comm.NewSlot[Planes]()

// Of returns the planes of a communicator, nil without circuits.
func Of(c *comm.Core) *Planes { return slot.Of(c) }

// ports has the ports of this process.
var ports struct {
	sync.Mutex
	at map[*endpoints.Controller]*Port
}

// joinPort makes the machine of a rank, at its port.
func (p *Planes) joinPort(cfg Config) {
	ports.Lock()
	defer ports.Unlock()
	if ports.at == nil {
		ports.at = map[*endpoints.Controller]*Port{}
	}
	if cfg.Port = ports.at[p.Controller]; cfg.Port == nil {
		cfg.Port = NewPort(sequence.DefaultRepeats)
		ports.at[p.Controller] = cfg.Port
	}
	p.Machine = NewMachine(cfg, p)
}

// leavePort ends the machine's use of its port.
func (p *Planes) leavePort() {
	ports.Lock()
	defer ports.Unlock()
	if p.Machine.port.leave(p.Machine) {
		delete(ports.at, p.Controller)
	}
}

// Attach connects this rank's ports if the fabric has circuits and the communicator more than one rank.
func Attach(c *comm.Core, fab *endpoints.Fabric) error {
	switch {
	case c.Ranks == 1:
		return nil
	case fab == nil && c.Cfg.Transport == settings.TransportEBPF:
		return fmt.Errorf("shim: rank %d: LIGHTPATH_TRANSPORT=%s, but LIGHTPATH_FABRIC names no fabric with circuits: %w",
			c.Rank, settings.TransportEBPF, errdefs.ErrInvalidUsage)
	case fab == nil:
		return nil
	}
	ports, err := endpoints.AssignPorts(c.Table, fab.Ranks)
	if err != nil {
		return err
	}
	p := &Planes{Site: planning.NewSite(c.Cfg, fab.Fabric, ports), c: c}
	transport, err := endpoints.ChooseTransport(c.Table, c.Cfg)
	if err != nil {
		return err
	}
	costs := dispatch.PacketCosts(transport, fab.Fabric)
	p.Site.Packets, p.Site.Choices = &costs, dispatch.PacketChoices(transport)
	if p.Controller, err = endpoints.AttachPort(c, fab, ports[c.Rank]); err != nil {
		return fmt.Errorf("shim: rank %d: %w", c.Rank, err)
	}
	if p.Controller.NumPorts() != fab.Ranks || len(p.Controller.Planes()) != len(fab.Planes) {
		err = fmt.Errorf("shim: rank %d: the controller at %s has %d ports and %d planes, fabric %s says %d and %d: %w",
			c.Rank, p.Controller.Key.Controller, p.Controller.NumPorts(), len(p.Controller.Planes()), fab.Path, fab.Ranks,
			len(fab.Planes), errdefs.ErrInvalidUsage)
	} else {
		p.End, p.HCAs, err = endpoints.Circuits(c, fab, p.Controller)
	}
	if err != nil {
		p.Controller.Detach()
		return err
	}
	p.joinPort(Config{Rank: c.Rank, Holder: c.ID, Places: p.Site.Places, Planes: len(fab.Planes),
		Timeout: c.Cfg.Timeout, Declined: func(seq uint64) { p.tell(AnswerRecall(seq, false)) },
		Contested: func() { p.tell(control.Message{Kind: control.MsgContested}) }})
	recorder.Of(c).Planes = len(fab.Planes)
	slot.Set(c, p)
	planning.Retain()
	c.OnFailure(p.wake)
	c.AddHooks(comm.Hooks{Faults: p.faults})
	p.Controller.Watch(p, p.wake)
	return nil
}

// faults returns the faults that this rank sees of its planes and their controller.
func (p *Planes) faults(wait time.Duration) []status.Fault {
	all := endpoints.Faults(p.End)
	if since, silent := p.Controller.Silent(wait); silent {
		seen := fmt.Sprintf("the controller at %s has not answered", p.Controller.Key.Controller)
		all = append(all, status.Fault{Plane: status.Controller, Peer: -1, Seen: seen, Since: since})
	}
	return all
}

// Describe describes the planes for the log.
func (p *Planes) Describe() string {
	if p == nil {
		return "none"
	}
	at := &p.Controller.Key
	return fmt.Sprintf("%d planes at %s, port %d", len(p.Site.Planes), at.Controller, at.Port)
}

// Waiting returns what the planes of the operation in progress wait for, as far as the controller knows. It may block.
func (p *Planes) Waiting() string {
	var planes []string
	for j := range p.Machine.ticket.Use.Each() {
		planes = append(planes, p.WaitingOn(j))
	}
	return strings.Join(planes, "; ")
}

// WaitingOn returns what the next reconfiguration of a plane waits for. It asks the controller, but not a silent one:
// each question would take seconds.
func (p *Planes) WaitingOn(plane int) string {
	if _, silent := p.Controller.Silent(endpoints.SilentAfter); silent {
		return fmt.Sprintf("plane %d: unknown (the controller does not answer)", plane)
	}
	text, err := p.Controller.Waiting(plane)
	if err != nil {
		return fmt.Sprintf("plane %d: unknown (%v)", plane, err)
	}
	return text
}

// SkipDrain implements the injected fault of that name.
func (p *Planes) SkipDrain(plane int, epoch uint32) bool {
	f := &p.c.Cfg.Fault
	return f.SkipDrain && plane == f.Plane && epoch == f.Epoch
}

// Quiesce waits, at most for [comm.Linger], until this rank's data has left the wire and its requested switches are
// done. Until then the other ranks need this rank's ports.
func (p *Planes) Quiesce() {
	if p == nil {
		return
	}
	for deadline := time.Now().Add(comm.Linger); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		pending := false
		for j := range p.Machine.standing {
			if p.c.Failed() {
				return
			}
			reached, err := p.Machine.Reached(j)
			if err != nil {
				continue // a failed plane does not move any more
			}
			drained, err := p.End.Planes()[j].Drained()
			pending = pending || err == nil && !drained || !reached
		}
		if !pending {
			return
		}
	}
}

// wake wakes the call in progress. The communicator may fail after this rank has left, and End is closed.
func (p *Planes) wake() {
	p.waking.Lock()
	defer p.waking.Unlock()
	if !p.ended {
		p.End.Wake()
	}
}

// Close disconnects from the controller. Idempotent.
func (p *Planes) Close() {
	if p == nil {
		return
	}
	p.closed.Do(func() {
		p.Controller.Watch(p, nil)
		p.leavePort()
		p.waking.Lock()
		p.ended = true
		p.waking.Unlock()
		_ = p.End.Close()
		p.Controller.Detach()
		planning.Release()
	})
}

// Post implements [exec.Switch].
func (p *Planes) Post(plane int, epoch uint32, target circuit.Permutation) error {
	return p.Controller.Post(plane, epoch, p.c.ID, p.Machine.Ports(target))
}

// Poll implements [exec.Switch]. A refused post of this communicator is an error too, and so is a move that is not one
// of the operation in progress.
func (p *Planes) Poll(plane int) (epoch uint32, err error) {
	if epoch, err = p.poll(plane); err == nil {
		err = p.Machine.CheckEpoch(plane, epoch)
	}
	return epoch, err
}

func (p *Planes) poll(plane int) (epoch uint32, err error) {
	if epoch, err = p.Controller.Poll(plane); err == nil {
		err = p.Controller.Refused(plane, p.c.ID)
	}
	return epoch, err
}

// State implements [View].
func (p *Planes) State(plane int) (epoch uint32, ports circuit.Permutation, err error) {
	st := p.Controller.State(plane)
	_, err = p.poll(plane)
	return st.Epoch, st.Map, err
}

// Uses counts what operations of a rank have waited for.
type Uses struct {
	Ahead    uint64        // operations whose ticket was here before the call
	Asked    uint64        // operations whose ticket the rank had to ask for
	Declined uint64        // tickets that were here, for other calls
	Hidden   time.Duration // of switching between operations, while the job computed
	Exposed  time.Duration // of switching between operations, for which calls have waited
}

// uses is the state behind [Uses]. Calls write it, reports read it.
type uses struct {
	ahead, asked, declined atomic.Uint64
	hidden, exposed        atomic.Int64
	moving                 time.Time // when the last operation left planes that were still moving; zero: it has not
}

// Uses returns what the rank's operations have waited for.
func (p *Planes) Uses() Uses {
	u := &p.uses
	return Uses{u.ahead.Load(), u.asked.Load(), u.declined.Load(), time.Duration(u.hidden.Load()),
		time.Duration(u.exposed.Load())}
}

// noteMoving notes whether an operation leaves planes that still move to where the next operation begins.
func (p *Planes) noteMoving() {
	p.uses.moving = time.Time{}
	for j := range p.Machine.ticket.Use.Each() {
		if reached, err := p.Machine.Reached(j); err == nil && !reached {
			p.uses.moving = time.Now()
			return
		}
	}
}

// countSwitching counts the switching since the last operation. Of this, a call has waited from began on.
func (p *Planes) countSwitching(began time.Time) {
	u := &p.uses
	if u.moving.IsZero() {
		return
	}
	waited := time.Since(began)
	whole := time.Duration(p.Site.Template.ReconfigUS * float64(time.Microsecond))
	u.hidden.Add(int64(min(began.Sub(u.moving), max(whole-waited, 0))))
	u.exposed.Add(int64(waited))
	u.moving = time.Time{}
}
