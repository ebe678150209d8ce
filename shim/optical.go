package shim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"lightpath/collectives/transport"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/ticket"
	"lightpath/shim/topology"
)

// optical is a communicator's side of the planes with circuits. Maps are in ranks of the
// communicator unless said otherwise. The fields without a lock belong to whoever runs the
// communicator's operation: the calling thread, and between its Want and its ticket, at
// rank 0, the arbiter.
type optical struct {
	planning.Site
	c         *comm.Core
	at        *endpoints.Controller
	end       transport.Endpoint
	switches  ocsctl.Client // posts maps of ranks
	hcas      topology.HCAs // of planes of RDMA ports
	member    []int         // by port: its rank, or -1
	now       []planeNow
	base      []uint32             // reused, as are the next two
	switchAt  [][]int64            // by [plane][move], nanoseconds of Unix time
	times     []time.Duration      // planned, of all moves
	packet    map[calls.Shape]bool // shapes for which no planner has a plan
	ticket    ticket.Ticket        // of the operation in progress, reused
	exchanges exchanges

	closed sync.Once
	mu     sync.Mutex
	agreed map[planning.ID]*planning.Agreed
}

// planeNow is where this communicator's operations have left a plane. The plane may
// still be on its way there: a plan's last reconfiguration is not waited for.
type planeNow struct {
	epoch uint32
	maps  circuit.Permutation
	hash  uint64
}

// maxTakeover is how long a communicator waits for another controller when its own has ended;
// it does not wait longer for anything than LIGHTPATH_TIMEOUT.
const maxTakeover = 30 * time.Second

// attachOptical connects this rank's ports, where the fabric has circuits and the
// communicator more than one rank.
func attachOptical(c *comm.Core, fab *endpoints.Fabric) error {
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
	o := &optical{Site: planning.NewSite(c.Cfg, fab.Fabric, ports), c: c, packet: map[calls.Shape]bool{}, agreed: map[planning.ID]*planning.Agreed{}}
	if o.at, err = endpoints.AttachPort(fab, ports[c.Rank], min(c.Cfg.Timeout, maxTakeover)); err != nil {
		return fmt.Errorf("shim: rank %d: %w", c.Rank, err)
	}
	if o.at.NumPorts() != fab.Ranks || len(o.at.Planes()) != len(fab.Planes) {
		err = fmt.Errorf("shim: rank %d: the controller at %s has %d ports and %d planes, fabric %s says %d and %d: %w",
			c.Rank, o.at.Key.Controller, o.at.NumPorts(), len(o.at.Planes()), fab.Path, fab.Ranks, len(fab.Planes), errdefs.ErrInvalidUsage)
	} else {
		o.end, o.hcas, err = endpoints.Circuits(c, fab, o.at)
	}
	if err != nil {
		o.at.Detach()
		return err
	}
	o.member = slices.Repeat([]int{-1}, fab.Ranks)
	for r, p := range ports {
		o.member[p] = r
	}
	recorder.Of(c).Planes = len(fab.Planes)
	o.now = make([]planeNow, len(fab.Planes))
	o.base = make([]uint32, len(fab.Planes))
	o.switches = &rankSwitch{Client: o.at, o: o}
	opticalSlot.Set(c, o)
	c.OnFailure(o.end.Wake)
	if o.at.Rings == nil {
		o.at.Watch(o, o.end.Wake)
	}
	if leaderOf(c) != nil {
		leaderOf(c).tickets, err = newArbiter(leaderOf(c), o)
	}
	return err
}

// describe is for the log.
func (o *optical) describe() string {
	if o == nil {
		return "none"
	}
	return fmt.Sprintf("%d planes at %s, port %d", len(o.now), o.at.Key.Controller, o.at.Key.Port)
}

// reached reports whether plane j has got to where this communicator's calls leave it.
func (o *optical) reached(j int) (bool, error) {
	epoch, err := o.at.Poll(j)
	return int32(epoch-o.now[j].epoch) >= 0, err
}

// waiting says what the planes of the operation in progress wait for, as far as their controller
// knows. It may take a while.
func (o *optical) waiting() string {
	var planes []string
	for j := range o.ticket.Use.Each() {
		planes = append(planes, o.at.Waiting(j))
	}
	return strings.Join(planes, "; ")
}

// quiesce waits until what this rank's calls have sent has left the wire, and the switches
// that they asked for, and did not wait for, are made: until then the other ranks need this
// one's ports.
func (o *optical) quiesce(limit time.Duration) {
	if o == nil {
		return
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		pending := false
		for j := range o.now {
			if o.c.Failed() {
				return
			}
			reached, err := o.reached(j)
			if err != nil {
				continue // a plane that has failed goes nowhere
			}
			drained, err := o.end.Planes()[j].Drained()
			pending = pending || err == nil && !drained || !reached
		}
		if !pending {
			return
		}
	}
}

// departWait is how long the leader's Destroy waits for the other ranks, whose tickets it issues.
const departWait = 50 * time.Millisecond

// departCircuits takes leave of the controller before a process may end: one that ends without is a rank that died, to
// the controller and to its operator. Nothing is on its way here any more.
func departCircuits(c *comm.Core) {
	if opticalOf(c) == nil || c.Failed() {
		return
	}
	if leaderOf(c) != nil {
		select {
		case <-c.Star.EveryoneLeft():
			leaderOf(c).close()
		case <-time.After(departWait):
			return // release comes to it
		}
	}
	opticalOf(c).close()
}

// close takes leave of the controller. Idempotent.
func (o *optical) close() {
	if o == nil {
		return
	}
	o.closed.Do(func() {
		o.at.Watch(o, nil)
		_ = o.end.Close()
		o.at.Detach()
	})
}

func hasCircuits(c *comm.Core) bool { return opticalOf(c) != nil }

// skipDrain implements the fault of that name.
func (o *optical) skipDrain(plane int, epoch uint32) bool {
	f := &o.c.Cfg.Fault
	return f.SkipDrain && plane == f.Plane && epoch == f.Epoch
}

// mapOf returns the members' circuits of a plane's map of ports. A circuit to a port
// outside the communicator is none to it.
func (o *optical) mapOf(ports circuit.Permutation) circuit.Permutation {
	m := make(circuit.Permutation, len(o.Ports))
	for r, p := range o.Ports {
		m[r] = circuit.Dark
		if to := ports[p]; to != circuit.Dark {
			m[r] = o.member[to]
		}
	}
	return m
}

// entangled reports a plane on which a port outside the communicator has a circuit to a
// member: it would have to agree to every switch, and does not know of them.
func (o *optical) entangled(use planeset.Set) (plane int, yes bool) {
	for j := range use.Each() {
		for p, to := range o.at.State(j).Map {
			if to != circuit.Dark && o.member[p] < 0 && o.member[to] >= 0 {
				return j, true
			}
		}
	}
	return 0, false
}

// reload reads where planes are: after they were granted anew, others may have moved them.
func (o *optical) reload(granted planeset.Set) {
	for j := range granted.Each() {
		st := o.at.State(j)
		m := o.mapOf(st.Map)
		o.now[j] = planeNow{st.Epoch, m, m.Digest()}
	}
}

// fits checks that a ticket is for this fabric and these ranks.
func (o *optical) fits(t *ticket.Ticket) error {
	bad := len(t.Planes) != len(o.now)
	for j := range t.Use.Each() {
		bad = bad || t.Flags&ticket.Maps != 0 && len(t.Planes[j].Maps) != o.Ranks
	}
	if bad {
		return fmt.Errorf("%w: ticket for %d planes of %d, or other ranks", control.ErrMessage, len(t.Planes), len(o.now))
	}
	return nil
}

// learn takes over where a ticket says that the planes are, if it does.
func (o *optical) learn(t *ticket.Ticket) {
	if t.Flags&ticket.Maps == 0 {
		return
	}
	for j := range t.Use.Each() {
		p := &t.Planes[j]
		o.now[j] = planeNow{p.Epoch, p.Maps, p.Hash}
	}
}

// settleGrace is for how long a rank may go on to see the failure of a plane that the leader has
// been granted again: the controller tells each of them by itself.
const settleGrace = time.Second

// settle makes sure that this rank and the ticket agree on where the planes are, and waits
// until they are there. A plane may be further on already: a switch of this operation in
// which the rank has no part.
func (o *optical) settle(t *ticket.Ticket) error {
	began := time.Now()
	for j := range t.Use.Each() {
		n, want := &o.now[j], &t.Planes[j]
		if n.epoch != want.Epoch || n.hash != want.Hash {
			return fmt.Errorf("plane %d was left at epoch %d, the ticket says %d, or another map: %w",
				j, n.epoch, want.Epoch, ocsctl.ErrUnknownMap)
		}
		for {
			there, err := o.there(j, want)
			if err != nil && (t.Flags&ticket.Maps == 0 || time.Since(began) > settleGrace) {
				return err
			}
			if there && err == nil {
				break
			}
			if err := o.c.AsyncError(); err != nil {
				return err
			}
			if time.Since(began) > o.c.Cfg.Timeout {
				return fmt.Errorf("plane %d is at epoch %d, the ticket says %d: %w", j, o.at.State(j).Epoch, want.Epoch, errdefs.ErrTimeout)
			}
			time.Sleep(50 * time.Microsecond)
		}
		o.base[j] = want.Epoch
	}
	return nil
}

// there reports whether plane j is where a ticket says, or further on.
func (o *optical) there(j int, want *ticket.Plane) (bool, error) {
	st := o.at.State(j)
	if _, err := o.at.Poll(j); err != nil {
		return false, err
	}
	if st.Epoch == want.Epoch && o.mapOf(st.Map).Digest() != want.Hash {
		return false, fmt.Errorf("plane %d at epoch %d holds another map than the ticket's: %w", j, st.Epoch, ocsctl.ErrUnknownMap)
	}
	return int32(st.Epoch-want.Epoch) >= 0, nil
}

// advance records where a program leaves the planes that it used.
func (o *optical) advance(use planeset.Set, configs [][]circuit.Permutation) {
	for j := range use.Each() {
		if maps := configs[j]; len(maps) > 1 {
			m := maps[len(maps)-1]
			o.now[j] = planeNow{o.now[j].epoch + uint32(len(maps)-1), m, m.Digest()}
		}
	}
}

// giveUp agrees, on behalf of this rank's port, to the first switches of a program that take from it
// a circuit to a port outside the communicator. In maps of ranks the port is dark before and after,
// so the program does not know that it has a part in them. Nothing is under way on the circuit:
// no call of this communicator has used it, and whoever did has given the plane back.
func (o *optical) giveUp(use planeset.Set, configs [][]circuit.Permutation) error {
	for j := range use.Each() {
		maps := configs[j]
		if len(maps) < 2 || maps[1][o.c.Rank] != circuit.Dark {
			continue
		}
		if to := o.at.State(j).Map[o.at.Port()]; to == circuit.Dark || o.member[to] >= 0 {
			continue
		}
		if err := o.switches.Post(j, o.base[j], maps[1]); err != nil {
			return fmt.Errorf("shim: rank %d: plane %d epoch %d: %w", o.c.Rank, j, o.base[j], err)
		}
	}
	return nil
}

// maps returns the present maps of some planes, in their order.
func (o *optical) maps(use planeset.Set) []circuit.Permutation {
	maps := make([]circuit.Permutation, 0, use.Len())
	for j := range use.Each() {
		maps = append(maps, o.now[j].maps)
	}
	return maps
}

// standing hashes the present maps of some planes.
func (o *optical) standing(use planeset.Set) (h uint64) {
	for j := range use.Each() {
		h = h*0x9e3779b97f4a7c15 + o.now[j].hash
	}
	return h
}

// rankSwitch is the switch seen by a communicator: targets are maps of its ranks, laid
// over what the planes' other ports have.
type rankSwitch struct {
	ocsctl.Client
	o *optical
}

// Waiting says what a reconfiguration waits for.
func (s *rankSwitch) Waiting(plane int) string { return s.o.at.Waiting(plane) }

// Post implements ocsctl.Client.
func (s *rankSwitch) Post(plane int, epoch uint32, target circuit.Permutation) error {
	return s.Client.Post(plane, epoch, s.o.overlay(plane, target))
}

// Schedule implements ocsctl.Client.
func (s *rankSwitch) Schedule(plane int, epoch uint32, target circuit.Permutation, at time.Time) error {
	return s.Client.Schedule(plane, epoch, s.o.overlay(plane, target), at)
}

// overlay returns a map of ranks as one of ports. Other ports' circuits stay, so every rank
// asks for the same map whenever it does.
func (o *optical) overlay(plane int, target circuit.Permutation) circuit.Permutation {
	ports := o.at.State(plane).Map.Clone()
	for p := range ports {
		r := o.member[p]
		if r < 0 {
			continue
		}
		ports[p] = circuit.Dark
		if target[r] != circuit.Dark {
			ports[p] = o.Ports[target[r]]
		}
	}
	return ports
}
