package shim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"lightpath/collectives/transport/port"
	"lightpath/ocsctl"
	"lightpath/ocsctl/emulator"
	"lightpath/plans/circuit"
)

// optical is a communicator's side of the planes with circuits. Maps are in ranks of the
// communicator unless said otherwise. The fields without a lock belong to whoever runs the
// communicator's operation: the calling thread, and between its Want and its ticket, at
// rank 0, the arbiter.
type optical struct {
	planSite
	c        *Comm
	at       *attachment
	end      *port.Endpoint
	switches ocsctl.Client // posts maps of ranks
	member   []int         // by port: its rank, or -1
	now      []planeNow
	base     []uint32       // reused
	packet   map[shape]bool // shapes for which no planner has a plan
	ticket   ticket         // of the operation in progress, reused

	mu     sync.Mutex
	agreed map[planID]*agreedPlan
}

// planeNow is where this communicator's operations have left a plane. The plane may
// still be on its way there: a plan's last reconfiguration is not waited for.
type planeNow struct {
	epoch uint32
	maps  circuit.Permutation
	hash  uint64
}

// attachment is this process's connection to a port of the switch, shared by the
// communicators that use the port: tickets see to it that one does at a time.
type attachment struct {
	key    attachKey
	client *emulator.Client
	refs   int
}

type attachKey struct {
	socket string
	port   int
}

var attachments struct {
	sync.Mutex
	open map[attachKey]*attachment
}

func attachPort(key attachKey) (*attachment, error) {
	attachments.Lock()
	defer attachments.Unlock()
	a := attachments.open[key]
	if a == nil {
		client, err := emulator.Dial(key.socket, key.port)
		if err != nil {
			return nil, err
		}
		a = &attachment{key: key, client: client}
		if attachments.open == nil {
			attachments.open = map[attachKey]*attachment{}
		}
		attachments.open[key] = a
	}
	a.refs++
	return a, nil
}

func (a *attachment) detach() {
	attachments.Lock()
	defer attachments.Unlock()
	if a.refs--; a.refs == 0 {
		delete(attachments.open, a.key)
		_ = a.client.Close() // always nil
	}
}

// attachOptical connects this rank's ports, where the fabric has circuits and the
// communicator more than one rank.
func (c *Comm) attachOptical(fab *fabricInfo) error {
	if fab == nil || c.args.Ranks == 1 {
		return nil
	}
	ports, err := assignPorts(c.table, fab.Ranks)
	if err != nil {
		return err
	}
	o := &optical{planSite: newPlanSite(c.cfg, fab.Fabric, ports), c: c, packet: map[shape]bool{}, agreed: map[planID]*agreedPlan{}}
	if o.at, err = attachPort(attachKey{fab.socket, ports[c.args.Rank]}); err != nil {
		return fmt.Errorf("shim: rank %d: %w", c.args.Rank, err)
	}
	client := o.at.client
	o.end, err = port.New(port.Options{
		Rank: c.args.Rank, Ranks: c.args.Ranks, Ports: client.Ports(), MTU: client.MTU(),
		Health: func(plane int) error { _, err := client.Poll(plane); return err },
	})
	if err == nil && (client.NumPorts() != fab.Ranks || len(client.Planes()) != len(fab.Planes)) {
		err = fmt.Errorf("shim: rank %d: the switch at %s has %d ports and %d planes, fabric %s says %d and %d: %w",
			c.args.Rank, fab.socket, client.NumPorts(), len(client.Planes()), fab.path, fab.Ranks, len(fab.Planes), ErrInvalidUsage)
	}
	if err != nil {
		o.at.detach()
		return err
	}
	o.member = slices.Repeat([]int{-1}, fab.Ranks)
	for r, p := range ports {
		o.member[p] = r
	}
	o.now = make([]planeNow, len(fab.Planes))
	o.base = make([]uint32, len(fab.Planes))
	o.switches = &rankSwitch{Client: client, o: o}
	c.light = o
	c.addWaker(o.end.Wake)
	if c.leader != nil {
		c.leader.tickets, err = newArbiter(c.leader, o)
	}
	return err
}

// describe is for the log.
func (o *optical) describe() string {
	if o == nil {
		return "none"
	}
	return fmt.Sprintf("%d planes at %s, port %d", len(o.now), o.at.key.socket, o.at.key.port)
}

// reached reports whether plane j has got to where this communicator's calls leave it.
func (o *optical) reached(j int) (bool, error) {
	epoch, err := o.at.client.Poll(j)
	return int32(epoch-o.now[j].epoch) >= 0, err
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
			reached, err := o.reached(j)
			if err != nil || o.c.poison.Load() != nil {
				return
			}
			drained, err := o.end.Planes()[j].Drained()
			if err != nil {
				return
			}
			pending = pending || !drained || !reached
		}
		if !pending {
			return
		}
	}
}

func (o *optical) close() {
	if o != nil {
		_ = o.end.Close()
		o.at.detach()
	}
}

func (c *Comm) hasCircuits() bool { return c.light != nil }

// skipDrain implements the fault of that name.
func (o *optical) skipDrain(plane int, epoch uint32) bool {
	f := &o.c.cfg.Fault
	return f.SkipDrain && plane == f.Plane && epoch == f.Epoch
}

// mapOf returns the members' circuits of a plane's map of ports. A circuit to a port
// outside the communicator is none to it.
func (o *optical) mapOf(ports circuit.Permutation) circuit.Permutation {
	m := make(circuit.Permutation, len(o.ports))
	for r, p := range o.ports {
		m[r] = circuit.Dark
		if to := ports[p]; to != circuit.Dark {
			m[r] = o.member[to]
		}
	}
	return m
}

// entangled reports a plane on which a port outside the communicator has a circuit to a
// member: it would have to agree to every switch, and does not know of them.
func (o *optical) entangled() (plane int, yes bool) {
	for j := range o.now {
		for p, to := range o.at.client.State(j).Map {
			if to != circuit.Dark && o.member[p] < 0 && o.member[to] >= 0 {
				return j, true
			}
		}
	}
	return 0, false
}

// reload reads where the planes are: after they were granted anew, others may have moved
// them.
func (o *optical) reload() {
	for j := range o.now {
		st := o.at.client.State(j)
		m := o.mapOf(st.Map)
		o.now[j] = planeNow{st.Epoch, m, m.Digest()}
	}
}

// learn takes over where a ticket says that the planes are, if it does.
func (o *optical) learn(t *ticket) {
	if t.flags&ticketMaps == 0 {
		return
	}
	for j := range o.now {
		p := &t.planes[j]
		o.now[j] = planeNow{p.epoch, p.maps, p.hash}
	}
}

// settle makes sure that this rank and the ticket agree on where the planes are, and waits
// until they are there. A plane may be further on already: a switch of this operation in
// which the rank has no part.
func (o *optical) settle(t *ticket) error {
	deadline := time.Now().Add(o.c.cfg.Timeout)
	for j := range o.now {
		n, want := &o.now[j], &t.planes[j]
		if n.epoch != want.epoch || n.hash != want.hash {
			return fmt.Errorf("plane %d was left at epoch %d, the ticket says %d, or another map: %w",
				j, n.epoch, want.epoch, ocsctl.ErrUnknownMap)
		}
		for {
			st := o.at.client.State(j)
			if st.Epoch == want.epoch && o.mapOf(st.Map).Digest() != want.hash {
				return fmt.Errorf("plane %d at epoch %d holds another map than the ticket's: %w", j, st.Epoch, ocsctl.ErrUnknownMap)
			}
			if int32(st.Epoch-want.epoch) >= 0 {
				break
			}
			if err := o.c.AsyncError(); err != nil {
				return err
			}
			if _, err := o.at.client.Poll(j); err != nil {
				return err
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("plane %d is at epoch %d, the ticket says %d: %w", j, st.Epoch, want.epoch, ErrTimeout)
			}
			time.Sleep(50 * time.Microsecond)
		}
		o.base[j] = want.epoch
	}
	return nil
}

// advance records where a program leaves the planes.
func (o *optical) advance(configs [][]circuit.Permutation) {
	for j, maps := range configs {
		if len(maps) > 1 {
			m := maps[len(maps)-1]
			o.now[j] = planeNow{o.now[j].epoch + uint32(len(maps)-1), m, m.Digest()}
		}
	}
}

// maps returns the present maps of all planes.
func (o *optical) maps() []circuit.Permutation {
	all := make([]circuit.Permutation, len(o.now))
	for j := range all {
		all[j] = o.now[j].maps
	}
	return all
}

// rankSwitch is the switch seen by a communicator: targets are maps of its ranks, laid
// over what the planes' other ports have.
type rankSwitch struct {
	ocsctl.Client
	o *optical
}

// Waiting says what a reconfiguration waits for.
func (s *rankSwitch) Waiting(plane int) string { return s.o.at.client.Waiting(plane) }

// Post implements ocsctl.Client. Other ports' circuits stay, so every rank posts the same
// map whenever it does.
func (s *rankSwitch) Post(plane int, epoch uint32, target circuit.Permutation) error {
	o := s.o
	ports := o.at.client.State(plane).Map.Clone()
	for p := range ports {
		r := o.member[p]
		if r < 0 {
			continue
		}
		ports[p] = circuit.Dark
		if target[r] != circuit.Dark {
			ports[p] = o.ports[target[r]]
		}
	}
	return s.Client.Post(plane, epoch, ports)
}
