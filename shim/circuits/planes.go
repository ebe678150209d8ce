package circuits

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"lightpath/collectives/transport"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/status"
	"lightpath/shim/ticket"
	"lightpath/shim/topology"
)

// Planes is a rank's side of the planes with circuits. Maps connect ranks of the communicator unless said otherwise.
// The communicator's turn guards all fields that have no lock of their own.
type Planes struct {
	planning.Site
	Controller *endpoints.Controller // moves the planes
	End        transport.Endpoint
	HCAs       topology.HCAs  // for planes of RDMA ports
	Known      planning.Known // plans that tickets may name

	c        *comm.Core
	parent   *Planes // of the parent communicator; nil: there is no parent with circuits
	member   []int   // by port: its rank, or -1
	switches *Switches
	now      []ticket.Plane // where this communicator's operations leave each plane
	base     []uint32       // each plane's epoch when the operation in progress began
	grant    Grant          // of the operation in progress
	request  []byte         // reused
	closed   sync.Once
	requests requests
}

var slot = comm.NewSlot[Planes]()

// Of returns the planes of a communicator, nil without circuits.
func Of(c *comm.Core) *Planes { return slot.Of(c) }

// maxTakeover is how long a communicator waits for another controller after its own has ended. LIGHTPATH_TIMEOUT also
// bounds the wait.
const maxTakeover = 30 * time.Second

// Attach connects this rank's ports if the fabric has circuits and the communicator more than one rank. parent is the
// communicator that this one comes from, nil for none.
func Attach(c *comm.Core, fab *endpoints.Fabric, parent *comm.Core) error {
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
	p.Packets = dispatch.PacketCosts(transport)
	if p.Controller, err = endpoints.AttachPort(fab, ports[c.Rank], min(c.Cfg.Timeout, maxTakeover)); err != nil {
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
	if parent != nil {
		p.parent = Of(parent)
	}
	p.member = Members(ports, fab.Ranks)
	p.now, p.base = make([]ticket.Plane, len(fab.Planes)), make([]uint32, len(fab.Planes))
	p.switches = &Switches{Use: ocsctl.Use{Client: p.Controller, Holder: c.ID}, p: p}
	recorder.Of(c).Planes = len(fab.Planes)
	slot.Set(c, p)
	planning.Retain()
	c.OnFailure(p.End.Wake)
	c.AddHooks(comm.Hooks{Faults: p.faults})
	p.Controller.Watch(p, p.End.Wake)
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

// Members returns the rank at each port, -1 for a port outside the communicator.
func Members(ports []int, all int) []int {
	member := slices.Repeat([]int{-1}, all)
	for r, port := range ports {
		member[port] = r
	}
	return member
}

// Describe describes the planes for the log.
func (p *Planes) Describe() string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%d planes at %s, port %d", len(p.now), p.Controller.Key.Controller, p.Controller.Key.Port)
}

// Switches returns the switches, whose maps connect ranks.
func (p *Planes) Switches() *Switches { return p.switches }

// Base returns each plane's epoch at the beginning of the operation in progress.
func (p *Planes) Base() []uint32 { return p.base }

// Now returns where operations of this communicator leave each plane. A plane may still be switching, since operations
// do not wait for the last reconfiguration of a plan. The caller must not change the result.
func (p *Planes) Now() []ticket.Plane { return p.now }

// Reached reports whether a plane has reached the state in which operations leave it, or a later one.
func (p *Planes) Reached(plane int) (bool, error) {
	epoch, err := p.switches.Poll(plane)
	return int32(epoch-p.now[plane].Epoch) >= 0, err
}

// Granted returns the grant of the operation in progress, or of the last one.
func (p *Planes) Granted() *Grant { return &p.grant }

// Waiting returns what the planes of the operation in progress wait for, as far as the controller knows. It may block.
func (p *Planes) Waiting() string {
	var planes []string
	for j := range p.grant.Use.Each() {
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
	return p.Controller.Waiting(plane)
}

// SkipDrain implements the injected fault of that name.
func (p *Planes) SkipDrain(plane int, epoch uint32) bool {
	f := &p.c.Cfg.Fault
	return f.SkipDrain && plane == f.Plane && epoch == f.Epoch
}

// Quiesce waits, at most for limit, until this rank's data has left the wire and its requested switches are done.
// Until then the other ranks need this rank's ports.
func (p *Planes) Quiesce(limit time.Duration) {
	if p == nil {
		return
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		pending := false
		for j := range p.now {
			if p.c.Failed() {
				return
			}
			reached, err := p.Reached(j)
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

// Close disconnects from the controller. Idempotent.
func (p *Planes) Close() {
	if p == nil {
		return
	}
	p.closed.Do(func() {
		p.Controller.Watch(p, nil)
		_ = p.End.Close()
		p.Controller.Detach()
		planning.Release()
	})
}

// RankMap returns a plane's map of ports as a map of members. It drops circuits to ports outside the communicator.
func RankMap(ports circuit.Permutation, portOf, member []int) circuit.Permutation {
	m := make(circuit.Permutation, len(portOf))
	for r, p := range portOf {
		m[r] = circuit.Dark
		if to := ports[p]; to != circuit.Dark {
			m[r] = member[to]
		}
	}
	return m
}

// Switches lets a communicator move its planes by maps of ranks. Circuits of the planes' other ports stay as they are.
type Switches struct {
	ocsctl.Use
	p *Planes
}

// Waiting returns what a reconfiguration waits for.
func (s *Switches) Waiting(plane int) string { return s.p.WaitingOn(plane) }

// Post implements [exec.Switch].
func (s *Switches) Post(plane int, epoch uint32, target circuit.Permutation) error {
	return s.Use.Post(plane, epoch, s.p.overlay(plane, target))
}

// overlay turns a map of ranks into a map of ports. Other ports keep their circuits. So every rank requests the same
// map at any time.
func (p *Planes) overlay(plane int, target circuit.Permutation) circuit.Permutation {
	ports := p.Controller.State(plane).Map.Clone()
	for port := range ports {
		r := p.member[port]
		if r < 0 {
			continue
		}
		ports[port] = circuit.Dark
		if target[r] != circuit.Dark {
			ports[port] = p.Ports[target[r]]
		}
	}
	return ports
}
