package traced

import (
	"context"
	"errors"
	"strings"
	"testing"

	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/plans/iteration/trace"
)

// TestSteps: a call of several groups has the steps of its schedule on each of them, at the same time.
func TestSteps(t *testing.T) {
	f := &plans.Problem{Version: plans.Version, Ranks: 8, Planes: 2, BandwidthGbps: 100, ReconfigUS: 10,
		Circuits: plans.Simplex}
	tr := &trace.Trace{Ranks: 8, Communicators: []trace.Communicator{{Groups: [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}}},
		{Groups: [][]int{{3}}}},
		Calls: []trace.Call{
			{Collective: "allreduce", Algorithm: "ring", Bytes: 4000, After: []trace.After{{Call: trace.Begin}}},
			{Communicator: 1, Collective: "allreduce", Algorithm: "ring", Bytes: 1, After: []trace.After{{Call: 0}}},
			{Collective: "alltoall", Algorithm: "direct", Bytes: 4000, After: []trace.After{{Call: 1}}}}}
	p, err := iteration.Pose(f, "", tr, Steps)
	require.NoError(t, err)
	ring := p.Shapes[p.Of[0]]
	if len(ring.Steps) != 6 || ring.Steps[0].Bytes != 1000 || !ring.Steps[0].To.Equal(circuit.Shift(8, 2)) {
		t.Errorf("%+v", ring.Steps)
	}
	if n := len(p.Shapes[p.Of[1]].Steps); n != 0 {
		t.Errorf("%d steps on one rank", n)
	}
	if s := p.Shapes[p.Of[2]].Steps; len(s) != 1 || len(s[0].Flows) != 24 {
		t.Errorf("%+v", s)
	}
	compared, err := iteration.Compare(context.Background(), p, iteration.Options{})
	require.NoError(t, err)
	if _, err := check.Check(p, compared.Plan); err != nil {
		t.Error(err)
	}
}

// TestPackets: with the packet planes of the fabric file, calls take their rounds and the bytes of their busiest rank.
func TestPackets(t *testing.T) {
	all := []trace.Communicator{{Groups: [][]int{{0, 1, 2, 3}}}}
	tr := &trace.Trace{Ranks: 4, Communicators: all, Calls: []trace.Call{
		{Collective: "alltoall", Algorithm: "pairwise", Bytes: 4e6, After: []trace.After{{Call: trace.Begin}}},
		{Collective: "allreduce", Algorithm: "ring", Bytes: 4e6, After: []trace.After{{Call: 0}}},
		{Flows: [][2]int{{0, 1}, {0, 2}, {0, 3}, {3, 1}}, Bytes: 1e6, After: []trace.After{{Call: 1}}}}}
	f := &fabric.Fabric{Version: 1, Ranks: 4, Circuits: plans.Simplex,
		Planes:  []fabric.Plane{{Name: "p", Bandwidth: 8e9, OCS: "o"}, {Name: "q", Bandwidth: 8e9, OCS: "o"}},
		OCS:     []fabric.OCS{{Name: "o", Driver: fabric.DriverEmulator, Reconfig: 5e6}},
		Packets: fabric.PacketPlanes{Bandwidth: 15e9, Alpha: 1000}}
	p, err := Pose(f, tr)
	require.NoError(t, err)
	// One round of 3 blocks, 6 rounds of a quarter on a ring that needs no switch, and three messages of a rank.
	for call, want := range []float64{1 + 1600, 0, 1 + 1600} {
		if us, ok := p.PacketUS(call); us != want || ok != (want > 0) {
			t.Errorf("call %d: %v us on packet planes: %v, want %v us", call, us, ok, want)
		}
	}
	compared, err := iteration.Compare(context.Background(), p, iteration.Options{})
	require.NoError(t, err)
	if _, err := check.Check(p, compared.Plan); err != nil {
		t.Error(err)
	}
	tr.Calls[1].Algorithm = "pairwise"
	if _, err := Pose(f, tr); !errors.Is(err, iteration.ErrProblem) || !strings.Contains(err.Error(), "calls[1]") {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	tr := &trace.Trace{Ranks: 4, Communicators: []trace.Communicator{{Groups: [][]int{{0, 1, 2, 3}}}}, Calls: []trace.Call{
		{Collective: "allreduce", Algorithm: "magic", After: []trace.After{{Call: trace.Begin}}}}}
	f := &fabric.Fabric{Version: 1, Ranks: 4, Planes: []fabric.Plane{{Name: "p", Bandwidth: 1e9}}}
	if _, err := Pose(f, tr); !errors.Is(err, iteration.ErrProblem) || !strings.Contains(err.Error(), "no switches") {
		t.Error(err)
	}
	template := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 1, BandwidthGbps: 1, Circuits: plans.Simplex}
	_, err := iteration.Pose(template, "", tr, Steps)
	if !errors.Is(err, iteration.ErrProblem) || !strings.Contains(err.Error(), "calls[0] (allreduce magic") {
		t.Error(err)
	}
	tr.Calls[0].Collective = "allmagic"
	if _, err = iteration.Pose(template, "", tr, Steps); !errors.Is(err, schedule.ErrCollective) {
		t.Error(err)
	}
}
