package shim

import (
	"encoding/json"
	"time"

	"lightpath/plans/circuit"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/planeset"
)

// Ports outside a communicator that have circuits to its members would have to agree to every
// switch of them, and do not know of it. A communicator that comes from another one has them
// give those circuits up first: its leader, which holds the planes, so that nobody else sends
// on them, asks the leader of the parent, whose ranks the ports are, and that has them post a
// map in which the circuits are dark.

// vacateAsk is what goes to the parent's leader, and to each rank that it concerns.
type vacateAsk struct {
	Plane  int
	Epoch  uint32
	Target circuit.Permutation // of ports
	Ranks  []int               // of the parent, that have to agree
}

// handleVacating has the leader ask its ranks for circuits, and ranks give them up.
func handleVacating(c *comm.Core) {
	c.HandleAtLeader(control.MsgVacateAsk, func(m *control.Message) { go leaderOf(c).births.vacate(m) })
	c.Handle(control.MsgVacate, func(m *control.Message) {
		if o := opticalOf(c); o != nil {
			o.vacate(m)
		}
	})
}

// vacate frees the members' circuits on the planes that are held. Where it cannot, they stay as
// they are, and the operation goes by packet planes.
func (a *arbiter) vacate() error {
	for j := range a.held.Each() {
		st := a.o.at.State(j)
		target, ports := a.o.withoutOutside(st.Map)
		if len(ports) == 0 {
			continue
		}
		if !vacatedBy(a.o.c, vacateAsk{Plane: j, Epoch: st.Epoch, Target: target}, ports) {
			return nil
		}
		if err := a.reach(j, st.Epoch+1); err != nil {
			return err
		}
		a.o.reload(planeset.Set(1) << j)
		a.moved |= planeset.Set(1) << j
	}
	return nil
}

// withoutOutside returns a map without the circuits from ports outside the communicator to its
// members, and those ports.
func (o *optical) withoutOutside(m circuit.Permutation) (target circuit.Permutation, ports []int) {
	target = m.Clone()
	for p, to := range m {
		if to != circuit.Dark && o.member[p] < 0 && o.member[to] >= 0 {
			target[p] = circuit.Dark
			ports = append(ports, p)
		}
	}
	return target, ports
}

// vacatedBy asks the nearest ancestor to which all of some ports belong, and reports whether
// its ranks have been told.
func vacatedBy(c *comm.Core, ask vacateAsk, ports []int) bool {
	for p := birthOf(c).parent; p != nil; p = birthOf(p).parent {
		if p.Life() != comm.Alive || p.AsyncError() != nil || opticalOf(p) == nil {
			continue
		}
		ask.Ranks = ask.Ranks[:0]
		for _, port := range ports {
			if r := opticalOf(p).member[port]; r >= 0 {
				ask.Ranks = append(ask.Ranks, r)
			}
		}
		if len(ask.Ranks) == len(ports) {
			return vacates(p, &ask)
		}
	}
	return false
}

// vacates passes the wish of a communicator that comes from c to c's leader, and waits for its
// answer.
func vacates(c *comm.Core, ask *vacateAsk) bool {
	body, err := json.Marshal(ask)
	if err != nil {
		return false
	}
	seq := birthOf(c).kin.wish()
	answered := birthOf(c).kin.expect(seq)
	defer birthOf(c).kin.forget(seq)
	if c.Star.ToLeader(&control.Message{Kind: control.MsgVacateAsk, Seq: seq, Body: body}) != nil {
		return false
	}
	timer := time.NewTimer(c.Cfg.Timeout)
	defer timer.Stop()
	select {
	case m := <-answered:
		return m.Arg == 0
	case <-c.FailedChan():
	case <-birthOf(c).kin.done():
	case <-c.Star.EveryoneLeft():
	case <-timer.C:
	}
	return false
}

// vacate is the parent's leader: it tells the ranks, if all are there. A post that others do not
// follow would stand in the way of whoever holds the plane next.
func (b *births) vacate(m *control.Message) {
	var ask vacateAsk
	ok := control.DecodeStrict(m.Body, &ask) == nil
	for _, r := range ask.Ranks {
		ok = ok && r >= 0 && r < b.c.Ranks && !b.c.Star.HasLeft(r)
	}
	answer := &control.Message{Kind: control.MsgKinAnswer, Seq: m.Seq}
	if ok {
		for _, r := range ask.Ranks {
			b.c.Star.To(r, &control.Message{Kind: control.MsgVacate, Body: m.Body})
		}
	} else {
		answer.Arg = 1
	}
	b.c.Star.To(int(m.From), answer)
}

// vacate is a rank: its port agrees to lose the circuit that it has. Nothing is under way on
// it, for somebody else holds the plane.
func (o *optical) vacate(m *control.Message) {
	var ask vacateAsk
	if control.DecodeStrict(m.Body, &ask) != nil || ask.Plane < 0 || ask.Plane >= len(o.now) ||
		ask.Target.Validate(len(o.member)) != nil || ask.Target[o.at.Port()] != circuit.Dark {
		return // whoever asks waits for the plane, and says so
	}
	// What goes wrong there is the plane's failure, which its holder sees.
	_ = o.at.Post(ask.Plane, ask.Epoch, ask.Target)
}

// reach waits until a plane is at an epoch.
func (a *arbiter) reach(j int, epoch uint32) error {
	now := a.o.now[j]
	a.o.now[j].epoch = epoch
	err := a.await(j)
	if err != nil {
		a.o.now[j] = now
	}
	if outOfService(err) {
		return a.drop(j, err)
	}
	return err
}
