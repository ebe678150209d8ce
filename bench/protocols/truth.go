package protocols

import (
	"slices"
	"time"

	"lightpath/bench/protocols/trace"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// truth is an observer's view of a plane: its light, the data on it, and the news that controllers have published.
type truth struct {
	w      *world
	plane  int
	s      *opticalSwitch
	frames []*frame // by port, from which it comes

	disturbedAt, changed int64 // times of the last fault and the last change of circuits
	disturbed            bool  // a fault may have changed light, and the controller has not had time to notice
	quietFrom            int64 // since when a controller has watched the switch without a break

	writer   *rule               // of the last message to the switch
	newest   uint64              // token of the newest rule that has changed circuits
	intents  []intent            // news may arrive late, so intents stay
	good     *news               // the last state in service; nil: none is known
	orders   int                 // to enable the plane, since the last order to disable it
	asked    int                 // changes that operators have asked for, without an answer
	ordered  bool                // an operator has asked for a change since the last failure
	disabled bool                // an operator was told so, and has not enabled it since
	setAt    int64               // when an operator last asked to set the plane; 0: never
	setEpoch uint32              // the epoch of the plane then
	set      circuit.Permutation // an operator was told so, and no circuit has changed since; nil: none
}

// intent is a move that a controller has begun, or wanted to: for one communicator or more, or for an operator.
type intent struct {
	to     circuit.Permutation
	epochs []uint32 // of the ports, after the move
}

// intend notes an intent.
func (t *truth) intend(i *controller.Intent) {
	own := intent{i.To, i.Epochs}
	if own.epochs == nil {
		own.epochs = slices.Repeat([]uint32{i.Epoch + 1}, len(i.To))
	}
	t.intents = append(t.intents, own)
}

// frame is data of an operation on a circuit.
type frame struct {
	g       *group
	to      int
	lost    bool // a fault has taken the light, or an operator, while the sender was out of touch
	arrived bool
}

// noticed is the time in which a controller notices a change of circuits or light: a read every five seconds, and a
// second one to be sure.
const noticed = 20 * time.Second

func newTruth(w *world, plane int) *truth {
	t := &truth{w: w, plane: plane, s: w.switches[plane], frames: make([]*frame, w.cfg.Ports)}
	t.s.taken = t.taken
	return t
}

// disturb notes that a fault may change light.
func (t *truth) disturb() {
	t.disturbed, t.disturbedAt, t.quietFrom, t.set = true, t.w.clock, t.w.clock, nil
}

// watch notes whether a controller watches the switch.
func (t *truth) watch() {
	p := t.w.leader()
	switch {
	case p == nil || !t.w.running(p.node) || !p.toSwitch[t.plane].open() || !p.fromSw[t.plane].open() || !t.s.model.Up():
		t.quietFrom = t.w.clock
	case t.w.clock-max(t.quietFrom, p.began) > int64(noticed):
		t.disturbed = false
	}
}

// lit returns where light goes.
func (t *truth) lit() circuit.Permutation { return t.s.lit(0) }

// flight are the times that data takes to its receiver.
var flight = [4]time.Duration{200e3, 20e3, 2e6, 30e6}

// send implements [ground].
func (w *world) send(plane, from, to int, g *group) (arrived func() bool) {
	t := w.planes[plane]
	f := &frame{g: g, to: to}
	t.leaves(from, f)
	t.frames[from] = f
	w.line(trace.Internal, w.ports[from].node.name, "", "sends data on plane %d to port %d", plane, to)
	w.after(flight[w.choose.Choose(len(flight))], func() { t.arrive(from, f) })
	return func() bool { return f.arrived }
}

// arrive delivers a frame.
func (t *truth) arrive(from int, f *frame) {
	if t.frames[from] == f {
		t.frames[from] = nil
	}
	if f.g.failed != nil {
		return
	}
	if t.leaves(from, f); f.lost {
		return
	}
	f.arrived = true
	for _, m := range f.g.members {
		if m.host.port == f.to {
			m.got[t.plane]++ // it may not have its ticket yet
		}
		t.w.reach(t.w.ports[m.host.port].node, func() {
			if t.w.ports[m.host.port].host == m.host {
				m.host.look()
			}
		})
	}
}

// leader returns the process that leads, if it has begun; nil: none does.
func (w *world) leader() *process {
	if w.store.leader == nil || w.store.until <= w.clock {
		return nil
	}
	if p := w.store.leader.p; p.core != nil && p.rule == w.store.leader {
		return p
	}
	return nil
}
