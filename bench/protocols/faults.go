package protocols

import (
	"slices"
	"time"

	"lightpath/bench/protocols/trace"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
)

// faults injects faults. The chooser decides after how many events, which, and where.
type faults struct {
	w      *world
	list   []faultKind // that may happen
	left   int         // events until the next
	last   int64       // when the last one happened or ended
	lasts  []bool      // by switch: a fault lasts until it is repaired
	ending int         // faults that end by themselves and have not
}

// faultKind is a kind of fault.
type faultKind struct {
	name   string
	inject func(w *world)
}

// times are how long faults last.
var times = [8]time.Duration{100e6, 20e9, 1e9, 3e9, 5500e6, 7e9, 12e9, 40e9}

func (w *world) lasting() time.Duration { return times[w.choose.Choose(len(times))] }

// faultKinds are all faults, sorted by name.
var faultKinds = []faultKind{
	{"clock-jump", func(w *world) { w.anyNode().skew += int64(w.lasting()) }},
	{"connection-cut", func(w *world) {
		if c := w.ports[w.choose.Choose(len(w.ports))].c; c != nil {
			c.cut("fault")
		}
	}},
	{"controller-crash", func(w *world) {
		p := w.anyProcess()
		p.crash()
		w.ends(w.lasting(), p.start)
	}},
	{"controller-isolated", func(w *world) {
		p, d := w.anyProcess().node, w.lasting()
		for _, n := range w.nodes {
			if n != p {
				w.block(p, n, d)
			}
		}
	}},
	{"controller-pause", func(w *world) { w.stop(w.anyProcess().node) }},
	{"etcd-loses-writes", func(w *world) { w.store.lose(1 + w.choose.Choose(savedStates)) }},
	{"etcd-member-down", func(w *world) {
		if s := w.store; s.down < w.cfg.Members {
			s.down++
			w.ends(w.lasting(), func() { s.down-- })
		}
	}},
	{"etcd-slow", func(w *world) {
		w.store.slow = w.lasting()
		w.ends(w.lasting(), func() { w.store.slow = 0 })
	}},
	{"partition-etcd", func(w *world) { w.block(w.anyProcess().node, w.store.node, w.lasting()) }},
	{"partition-rank", func(w *world) {
		w.block(w.anyProcess().node, w.ports[w.choose.Choose(len(w.ports))].node, w.lasting())
	}},
	{"partition-switch", func(w *world) {
		w.block(w.anyProcess().node, w.switchNode(w.choose.Choose(len(w.planes))), w.lasting())
	}},
	{"rank-killed", func(w *world) {
		if j := w.jobs[w.choose.Choose(len(w.jobs))]; len(j.groups) > 0 {
			w.line(trace.Fault, j.name, "", "a rank is killed")
			j.end(false)
		}
	}},
	{"rank-pause", func(w *world) { w.stop(w.ports[w.choose.Choose(len(w.ports))].node) }},
	{"switch-ghost", deviceFault(func(w *world, in, out int) device.Fault {
		return device.Fault{Kind: device.GhostConnect, In: in, Out: out}
	})},
	{"switch-lost-light", deviceFault(func(w *world, in, out int) device.Fault {
		return device.Fault{Kind: device.LostLight, In: -1, Out: out}
	})},
	{"switch-lost-reply", deviceFault(func(w *world, _, _ int) device.Fault {
		return device.Fault{Kind: device.LostReply, Count: 1 + 9*w.choose.Choose(3)}
	})},
	{"switch-partial-bulk", deviceFault(func(w *world, _, _ int) device.Fault {
		return device.Fault{Kind: device.PartialBulk, Count: w.choose.Choose(3), Silent: w.choose.Choose(2) == 1}
	})},
	{"switch-reboot", deviceFault(func(w *world, _, _ int) device.Fault {
		return device.Fault{Kind: device.Reboot, Delay: w.lasting()}
	})},
	{"switch-slow-pair", deviceFault(func(w *world, in, _ int) device.Fault {
		return device.Fault{Kind: device.SlowPair, In: in, Out: -1, Delay: w.lasting()}
	})},
	{"switch-stuck-mirror", deviceFault(func(w *world, in, _ int) device.Fault {
		return device.Fault{Kind: device.StuckMirror, In: in, Out: -1, Silent: w.choose.Choose(2) == 1}
	})},
	{"switch-third-party", deviceFault(func(w *world, in, out int) device.Fault {
		return device.Fault{Kind: device.ThirdParty, In: in, Out: out}
	})},
}

// deviceFault returns a fault of a switch. The switch is repaired some time later.
func deviceFault(f func(w *world, in, out int) device.Fault) func(w *world) {
	return func(w *world) {
		j, ports := w.choose.Choose(len(w.planes)), w.cfg.Ports
		fault := f(w, w.choose.Choose(ports), w.choose.Choose(ports))
		w.planes[j].disturb()
		if err := w.switches[j].model.Inject(fault); err != nil {
			w.violate(panics, "%v", err)
		}
		w.fault.lasts[j] = true
		w.after(w.lasting()+fault.Delay, func() { w.repair(j) })
	}
}

// repair ends the faults of a switch.
func (w *world) repair(plane int) {
	if err := w.switches[plane].model.Inject(device.Fault{Kind: device.Clear}); err != nil {
		w.violate(panics, "%v", err)
	}
	w.planes[plane].disturb()
	w.fault.lasts[plane], w.fault.last = false, w.clock
}

// anyProcess returns a controller, mostly the leader.
func (w *world) anyProcess() *process {
	if p := w.leader(); p != nil && w.choose.Choose(4) < 3 {
		return p
	}
	return w.processes[w.choose.Choose(len(w.processes))]
}

// anyNode returns a process of a controller or of a rank.
func (w *world) anyNode() *node {
	i := w.choose.Choose(len(w.processes) + len(w.ports))
	if i < len(w.processes) {
		return w.processes[i].node
	}
	return w.ports[i-len(w.processes)].node
}

// ends does something at the end of a fault.
func (w *world) ends(after time.Duration, do func()) {
	w.fault.ending++
	w.after(after, func() {
		w.fault.ending--
		w.fault.last = w.clock
		do()
	})
}

// stop makes a process stand still.
func (w *world) stop(n *node) {
	d := w.lasting()
	w.pause(n, d)
	w.ends(d, func() {})
}

// block makes the network lose the messages between two nodes, in one direction or in both.
func (w *world) block(a, b *node, d time.Duration) {
	way := w.choose.Choose(3)
	s := span{w.clock, w.clock + int64(d)}
	if way != 1 {
		a.blocked[b.index] = s
	}
	if way != 0 {
		b.blocked[a.index] = s
	}
	w.ends(d, func() {})
}

func newFaults(w *world) *faults {
	f := &faults{w: w, lasts: make([]bool, w.cfg.Planes), left: 1000}
	for _, k := range faultKinds {
		if w.cfg.Unfenced == 1 && (k.name == "partition-switch" || k.name == "controller-isolated") {
			continue // nothing stops a change that the network has held for longer than a lease
		}
		if len(w.cfg.Faults) == 0 || slices.Contains(w.cfg.Faults, k.name) {
			f.list = append(f.list, k)
		}
	}
	return f
}

// gaps are numbers of events between two faults. The last lets all faults end first.
var gaps = [16]int{4096, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 60_000}

// step counts an event, and may inject a fault.
func (f *faults) step() {
	w := f.w
	if w.healing != 0 {
		return
	}
	if w.result.Operations >= w.cfg.Operations {
		w.heal()
		return
	}
	if f.left--; f.left > 0 {
		return
	}
	f.left = gaps[w.choose.Choose(len(gaps))]
	i := w.choose.Choose(len(f.list) + 1)
	if i == 0 {
		return
	}
	k := f.list[i-1]
	w.result.Coverage[Cell{k.name, w.state()}]++
	w.line(trace.Fault, "", "", "%s", k.name)
	f.last = w.clock
	w.step(func() { k.inject(w) })
}

// settling is how long operations may fail after a fault: time-outs, grace time and the next verification pass.
const settlingTime = 90 * time.Second

// recent reports whether a recent fault may still make operations fail.
func (f *faults) recent() bool {
	return f.ending > 0 || slices.Contains(f.lasts, true) || f.last != 0 && f.w.clock-f.last < int64(settlingTime)
}

// state names what the world is doing, for the table of coverage.
func (w *world) state() string {
	p := w.leader()
	if p == nil {
		return "no leader"
	}
	if time.Duration(w.clock-p.began) < controller.DefaultGrace {
		return "takeover"
	}
	busiest := idle
	for _, j := range w.jobs {
		for _, g := range j.groups {
			for _, m := range g.members {
				busiest = max(busiest, m.stage)
			}
		}
	}
	return busiest.String()
}

// Limits of the end of a run.
const (
	healTime         = 5 * time.Minute
	servedOperations = 5 // of each job
)

// heal ends all faults.
func (w *world) heal() {
	w.line(trace.Internal, "", "", "all faults end")
	for _, n := range w.nodes {
		clear(n.blocked)
		if !w.running(n) {
			n.paused.to = w.clock
			w.after(0, func() { w.wake(n) })
		}
	}
	for j := range w.switches {
		w.repair(j)
	}
	for _, p := range w.processes {
		p.start()
	}
	w.healing, w.fault.last = w.clock, w.clock
	w.store.slow, w.store.down = 0, 0
}

// operator pauses.
var operatorPauses = [4]time.Duration{3e9, 1e9, 200e6, 10e9}

// operate plays an operator, who changes a plane now and then, and enables planes that are out of service.
func (w *world) operate() {
	w.after(operatorPauses[w.choose.Choose(len(operatorPauses))], w.operate)
	for _, t := range w.planes {
		t.watch()
	}
	p := w.leader()
	if p == nil || !w.running(p.node) {
		return
	}
	shot, err := p.core.Snapshot()
	if err != nil || !shot.Leader {
		return
	}
	for j, t := range w.planes {
		t.resting(&shot.Planes[j])
	}
	j := w.choose.Choose(len(w.planes))
	down := shot.Planes[j].State == controller.Down
	switch action := w.choose.Choose(8); {
	case down && action < 4 && shot.Planes[j].Out == nil: // bad circuits must be made again
		w.order(p, j, "enable", nil, nil)
	case down && action < 7, !down && action == 7 && w.healing == 0:
		ring := circuit.Shift(w.cfg.Ports, 1+w.choose.Choose(2)%w.cfg.Ports)
		targets := []circuit.Permutation{circuit.AllDark(w.cfg.Ports), ring}
		var then func()
		if down {
			then = func() {
				if w.leader() == p {
					w.order(p, j, "enable", nil, nil)
				}
			}
		}
		w.order(p, j, "set", targets[w.choose.Choose(2)], then)
	case !down && action == 6 && w.healing == 0, !down && action < 3 && shot.Planes[j].Out != nil: // jobs give it back
		w.order(p, j, "disable", nil, nil)
	}
}

// order makes an operator's change, and does then after its success.
func (w *world) order(p *process, plane int, what string, target circuit.Permutation, then func()) {
	t, asked := w.planes[plane], w.time()
	w.line(trace.Message, "operator", p.node.name, "%s plane %d %v", what, plane, target)
	t.asked++
	done := func(err error) {
		t.asked--
		w.line(trace.Message, p.node.name, "operator", "%s plane %d, asked at %v: %v", what, plane, asked, err)
		if err == nil && then != nil {
			w.later(then)
		}
		if err != nil || w.store.lost {
			return
		}
		switch what {
		case "disable":
			t.disabled = t.orders == 0
		case "set":
			t.set = target
		}
	}
	var err error
	switch what {
	case "disable":
		t.orders = 0
		err = p.core.BeginDisable(plane, "test", "operator", done)
	case "enable":
		t.ordered, t.disabled = true, false
		t.orders++
		err = p.core.BeginEnable(plane, "operator", done)
	default:
		t.ordered, t.set, t.setAt = true, nil, w.clock
		if t.good != nil {
			t.setEpoch = t.good.epoch
		}
		err = p.core.BeginChange(controller.Change{Planes: []controller.PlaneChange{{Plane: plane, Target: target}}},
			"operator", done)
	}
	if err != nil {
		w.violate(panics, "%s plane %d: %v", what, plane, err)
	}
	p.touch()
}
