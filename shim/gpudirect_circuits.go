package shim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"lightpath/collectives/program"
	"lightpath/collectives/transport/rdma"
	"lightpath/plans"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/endpoints"
	"lightpath/shim/settings"
)

// What follows is the path over planes whose circuits switch. Collectives with plans go there, as crossings; all else is staged. The
// two kinds of launches follow each other on the device.

// whyNotOverCircuits is why ports whose circuits switch cannot reach the memory of devices, "" where they can: a pure function of what all
// ranks share. overRDMA: the circuits end at RDMA ports.
func whyNotOverCircuits(cfg *settings.Config, kind plans.CircuitKind, overRDMA bool) string {
	switch {
	case cfg.DevicePath != settings.DevicePathRDMA:
		return "the fabric has circuits, and a communicator whose scripts are on streams ends with a plane that is taken out of service (LIGHTPATH_DEVICE_PATH=rdma: it may)"
	case !overRDMA:
		return "the planes' circuits do not end at RDMA ports"
	case kind != plans.Duplex:
		// Offers and acknowledgements have to travel back on the same plane.
		return fmt.Sprintf("the planes' circuits are %v, and messages need such as lead both ways (duplex)", kind)
	case cfg.BarrierTime:
		return "LIGHTPATH_BARRIER is time, and streams keep none"
	}
	return ""
}

// openPorts opens this rank's ports, one for each lane.
func (x *gpuDirect) openPorts() (*endpoints.Ports, error) {
	c := x.c
	if x.circuits {
		return endpoints.OpenPorts(c, circuits.Of(c).HCAs, len(circuits.Of(c).Planes))
	}
	return endpoints.OpenPorts(c, c.Cfg.IB.HCAs, c.Cfg.Planes)
}

// overSwitched reports whether the call's communicator has its device's memory reached over circuits.
func overSwitched(c *calls.Call) bool {
	return onDeviceOf(c.Comm) != nil && onDeviceOf(c.Comm).gdr != nil && onDeviceOf(c.Comm).gdr.circuits
}

// anySwitched reports whether one of the calls is of such a communicator. Hot path of all others.
func anySwitched(calls []calls.Call) bool {
	for i := range calls {
		if overSwitched(&calls[i]) {
			return true
		}
	}
	return false
}

// hasScript finds out whether the call has a plan that goes on streams. It depends on the shape alone, not on memory and streams,
// so all ranks find the same; the first call of a shape waits for the leader's answer.
func hasScript(c *calls.Call) (bool, error) {
	if !overSwitched(c) || c.Kind >= calls.NumKinds || c.Kind.P2P() || c.Count == 0 || c.Options.Planes != 0 || c.Options.Plan.Digits != 0 {
		return false, nil
	}
	e, err := onDeviceOf(c.Comm).gdr.in.of(c)
	return err == nil && e.script != nil, err
}

// withEpoch adds to the failure of a queue pair under which epoch its plane is.
func (x *gpuDirect) withEpoch(err error) error {
	var failure *rdma.QPError
	if x.circuits && errors.As(err, &failure) {
		failure.Epoch = circuits.Of(x.c).Controller.State(failure.Plane).Epoch
	}
	return err
}

// epochText names a plane's epoch where there are circuits.
func (x *gpuDirect) epochText(plane int) string {
	if !x.circuits {
		return ""
	}
	return fmt.Sprintf(", epoch %d", circuits.Of(x.c).Controller.State(plane).Epoch)
}

// turns are the calls of a group in the order in which they are made; pooled.
type turns struct {
	calls    []calls.Call
	scripted []bool // by call: it has a plan that goes on streams
}

var turnsPool = sync.Pool{New: func() any { return new(turns) }}

// runInTurns runs a group with calls of communicators over circuits: those that follow each other and go the same way together.
// Which way a collective goes does not depend on the group that it is in, and neither does their order.
func runInTurns(calls []calls.Call) error {
	t := turnsPool.Get().(*turns)
	err := t.run(calls)
	clear(t.calls)
	t.calls, t.scripted = t.calls[:0], t.scripted[:0]
	turnsPool.Put(t)
	return err
}

func (t *turns) run(group []calls.Call) error {
	t.calls = append(t.calls, group...)
	slices.SortStableFunc(t.calls, func(a, b calls.Call) int { return cmp.Compare(phaseOf(&a), phaseOf(&b)) })
	for i := range t.calls {
		scripted, err := hasScript(&t.calls[i])
		if err != nil {
			return err
		}
		t.scripted = append(t.scripted, scripted)
	}
	for from, to := 0, 0; from < len(t.calls); from = to {
		for to = from + 1; to < len(t.calls) && t.scripted[to] == t.scripted[from]; to++ {
		}
		if err := runTogether(t.calls[from:to], t.scripted[from]); err != nil {
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

// crossed puts a collective on its stream as a crossing, which is what the flight recorder hears of, whenever it runs.
func (x *gpuDirect) crossed(e *scripted, call *calls.Call, sh *calls.Shape) error {
	x.tag = program.Signature(uint64(sh.Signature()), x.calls+1)
	x.in.number = x.next()
	if err := x.in.enqueue(e, call); err != nil {
		return err
	}
	x.calls++
	return nil
}
