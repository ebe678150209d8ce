package shim

import (
	"cmp"
	"slices"
	"sync"

	"lightpath/shim/calls"
	"lightpath/shim/path/foreign"
	"lightpath/shim/path/host"
	"lightpath/shim/path/nic"
	"lightpath/shim/path/staged"
	"lightpath/shim/stream"
)

// Run runs calls as one group and returns when all have ended, or [errdefs.ErrInProgress] if their communicators do not
// block; all are of one kind. Calls on streams or device memory run later, when the streams reach them. Calls of one
// communicator keep their order, except that its one-sided calls come first, and its sends and receives are merged into
// one exchange after its collectives. Different communicators progress at the same time. All calls are checked before
// any has an effect. Hot path: a group of shapes seen before allocates nothing on packet planes.
func Run(group []calls.Call) error {
	var launched, ordered, devices bool
	for i := range group {
		call := &group[i]
		if err := calls.Check(call); err != nil {
			return err
		}
		f := calls.FactsOf(call.Comm)
		devices = devices || f.NoDevice == nil
		launched = launched || f.Launches != calls.NoLaunches
		ordered = ordered || f.Launches == calls.ByPortsOverCircuits
	}
	switch {
	case ordered:
		return runInTurns(group)
	case launched:
		return runTogether(group, isLaunched)
	case !devices:
		return host.Run(group)
	}
	return runHere(group)
}

func isLaunched(c *calls.Call) bool { return Route(c, calls.FactsOf(c.Comm), false, false).launches() }

func isLaunchedScripted(c *calls.Call) bool {
	return Route(c, calls.FactsOf(c.Comm), false, true).launches()
}

// runTogether puts calls on streams that need no CPU there, and runs the others.
func runTogether(group []calls.Call, launched func(*calls.Call) bool) error {
	for i := range group {
		if launched(&group[i]) {
			return stream.Run(group, launched, runHere)
		}
	}
	return runHere(group)
}

// runHere runs calls on a CPU of this rank, or by another library.
func runHere(group []calls.Call) error {
	onDevice, err := stream.OnStreams(group)
	if err != nil {
		return err
	}
	switch routeHere(calls.FactsOf(group[0].Comm), onDevice) {
	case Foreign:
		return foreign.Run(group)
	case Staged:
		return staged.Run(group)
	}
	stream.AwaitLaunches(group)
	return host.Run(group)
}

// turns holds the calls of a group in the order in which they run; pooled.
type turns struct {
	calls    []calls.Call
	scripted []bool // by call: it has a plan that goes on streams
}

var turnsPool = sync.Pool{New: func() any { return new(turns) }}

// runInTurns runs a group with calls of communicators over circuits. Consecutive calls with the same path run together.
// The path of a collective does not depend on the group that it is in, and neither does its order.
func runInTurns(group []calls.Call) error {
	t := turnsPool.Get().(*turns)
	err := t.run(group)
	clear(t.calls)
	t.calls, t.scripted = t.calls[:0], t.scripted[:0]
	turnsPool.Put(t)
	return err
}

func (t *turns) run(group []calls.Call) error {
	t.calls = append(t.calls, group...)
	slices.SortStableFunc(t.calls, func(a, b calls.Call) int { return cmp.Compare(phaseOf(&a), phaseOf(&b)) })
	for i := range t.calls {
		call, scripted := &t.calls[i], false
		if calls.FactsOf(call.Comm).Launches == calls.ByPortsOverCircuits {
			var err error
			if scripted, err = nic.HasScript(call); err != nil {
				return err
			}
		}
		t.scripted = append(t.scripted, scripted)
	}
	for from, to := 0, 0; from < len(t.calls); from = to {
		for to = from + 1; to < len(t.calls) && t.scripted[to] == t.scripted[from]; to++ {
		}
		launched := isLaunched
		if t.scripted[from] {
			launched = isLaunchedScripted
		}
		if err := runTogether(t.calls[from:to], launched); err != nil {
			for i := range t.calls[:from] { // the group will not be whole
				t.calls[i].Comm.Spread(err)
			}
			return err
		}
	}
	return nil
}

// phaseOf orders the calls of a group as Run does: one-sided calls, collectives, sends and receives.
func phaseOf(c *calls.Call) int {
	switch {
	case c.Kind.OneSided():
		return 0
	case c.Kind.P2P():
		return 2
	}
	return 1
}
