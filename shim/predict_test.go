package shim_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/predict"
	"lightpath/shim/result"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// simulated is a collective of count floats that is never run.
func simulated(c *shim.Comm, kind calls.Kind, count uint64) calls.Call {
	var in float32
	return calls.Call{Comm: c, Kind: kind, Type: datatype.Float32, Count: count, Send: unsafe.Pointer(&in),
		Recv: shimtest.FakeAddress(1 << 60)}
}

// TestSimulatePacket compares with sums made by hand, with the costs of a file: alpha 10 us, two
// planes of 4 Gb/s, so 1000 bytes a microsecond.
func TestSimulatePacket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	text := "version: 1\nranks: 4\nplanes:\n  - {name: a, bandwidth: 4Gbps}\n  - {name: b, bandwidth: " +
		"4Gbps}\ncosts: {alpha: 10us}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	t.Setenv("LIGHTPATH_PLANES", "2")
	t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:ring,allgather:ring,alltoall:pairwise")
	w := shimtest.NewWorld(t, 4)
	other := shimtest.NewWorld(t, 4).Comms[0]
	c := w.Comms[0]
	window := (&shimtest.WindowWorld{World: w, Mem: [][]byte{shimtest.WindowMemory(t, 1000, false)}}).Register(c)
	for name, k := range map[string]struct {
		calls []calls.Call
		want  float64
	}{
		// Six steps of a quarter of 400 kB.
		"allreduce": {[]calls.Call{simulated(c, calls.AllReduce, 100_000)}, 6 * (10 + 100)},
		// Three steps of 400 kB.
		"allgather": {[]calls.Call{simulated(c, calls.AllGather, 100_000)}, 3 * (10 + 400)},
		"nothing":   {[]calls.Call{simulated(c, calls.AllReduce, 0)}, 0},
		"no calls":  {nil, 0},
		"one by one": {[]calls.Call{simulated(c, calls.AllReduce, 100_000), simulated(c, calls.AllGather, 100_000)},
			6*110 + 3*410},
		"side by side": {[]calls.Call{simulated(c, calls.AllReduce, 100_000), simulated(other, calls.AllGather, 100_000)},
			3 * 410},
		// Sends and receives of one rank overlap.
		"exchange": {[]calls.Call{
			{Comm: c, Kind: calls.Send, Type: datatype.Int8, Count: 5000, Peer: 1, Send: shimtest.FakeAddress(8)},
			{Comm: c, Kind: calls.Send, Type: datatype.Int8, Count: 5000, Peer: 2, Send: shimtest.FakeAddress(8)},
			{Comm: c, Kind: calls.Recv, Type: datatype.Int8, Count: 7000, Peer: 3, Recv: shimtest.FakeAddress(8)},
		}, 10 + 10},
		// One after the other, and before what the others wait for.
		"one-sided": {[]calls.Call{
			shimtest.SignalTo(c, 1), shimtest.SignalsFrom(c, 2, 3), simulated(c, calls.AllReduce, 100_000),
			{Comm: c, Kind: calls.PutSignal, Type: datatype.Float32, Count: 98, Peer: 1, Send: shimtest.FakeAddress(8),
				Window: window},
		}, 2*(10+0.008) + (10 + 0.4) + 6*110},
	} {
		got, err := predict.Group(k.calls)
		if err != nil || math.Abs(got-k.want) > 1e-6 {
			t.Errorf("%s: %v us, %v, want %v", name, got, err, k.want)
		}
	}
	one := simulated(c, calls.AllReduce, 100_000)
	one.Options.Planes = 1
	if got, err := predict.Group([]calls.Call{one}); err != nil || math.Abs(got-6*(10+200)) > 1e-6 {
		t.Errorf("on one plane: %v us, %v", got, err)
	}
	bad := simulated(c, calls.Reduce, 1)
	bad.Peer = 9
	if _, err := predict.Group([]calls.Call{bad}); result.Of(err) != result.InvalidArgument {
		t.Error(err)
	}
	for _, c := range w.Comms {
		if session.Of(c).Seq != 0 {
			t.Errorf("rank %d has run something", c.Rank)
		}
	}
}

// TestSimulateCircuits: the interim plan's time before a call, the plan's after it.
func TestSimulateCircuits(t *testing.T) {
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	shimtest.UseEmulator(t, 4, 2, nil)
	w := shimtest.NewWorld(t, 4)
	time := func() float64 {
		us, err := predict.Group([]calls.Call{simulated(w.Comms[2], calls.AllReduce, 1)})
		if err != nil || !(us > 0) {
			t.Fatal(us, err)
		}
		return us
	}
	before := time()
	if _, errs := shimtest.SumWith(w, func(int) calls.Options { return calls.Options{} }); errs[2] != nil {
		t.Fatal(errs)
	}
	after := time()
	if plan := shimtest.LastPlan(t, w); after != plan.CCTUS || plan.Planner == "perstep" || before < after {
		t.Errorf("%v us before, %v after a plan of %s for %v", before, after, plan.Planner, plan.CCTUS)
	}
}
