package journal

import (
	"reflect"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// TestFailedKeepsDesired: after a failure, the next controller takes the plane back at the desired map only, whatever
// map the move of the intent has left.
func TestFailedKeepsDesired(t *testing.T) {
	before, after := circuit.AllDark(3), circuit.Shift(3, 1)
	s := State{Recovered: controller.Recovered{Epoch: 3, Map: before}}
	s.Intend(controller.Intent{Epoch: 3, To: after})
	s.Apply(&controller.Event{Kind: controller.Failed, Epoch: 4, Desired: after})
	if r := s.Next(); !r.Failed || !r.Map.Equal(after) || r.Intent != nil {
		t.Errorf("%+v", r)
	}
}

// TestRaisedEpoch: after a takeover, a plane may go on at a later epoch of all ports, without a move.
func TestRaisedEpoch(t *testing.T) {
	s := State{Recovered: controller.Recovered{Epoch: 3, Epochs: []uint32{3, 1}, Map: circuit.AllDark(2)}}
	s.Intend(controller.Intent{Epoch: 3, To: circuit.Shift(2, 1)})
	if r := s.Next(); !reflect.DeepEqual(r.Epochs, []uint32{3, 1}) {
		t.Errorf("%+v", r)
	}
	s.Intend(controller.Intent{Epoch: 4, To: circuit.Shift(2, 1)})
	if r := s.Next(); r.Epoch != 5 || r.Epochs != nil {
		t.Errorf("%+v", r)
	}
}

// TestFirstFormat: records of version 1 had digests of the maps of past epochs. Version 2 ignores them.
func TestFirstFormat(t *testing.T) {
	m := circuit.Shift(4, 1)
	text := `{"version":1,"plane":1,"revision":7,"digest":"` + digest(m) + `","epoch":3,"reserved":1027,"map":[1,2,3,0],` +
		`"intent":{"epoch":3,"to":[2,3,0,1]},"past":[{"epoch":3,"digest":"00000000000000a5"}],` +
		`"controller":"ocs1","token":3,"time":"2026-01-02T03:04:05Z"}`
	_, s, err := DecodePlane(PlaneKey(1), []byte(text))
	require.NoError(t, err)
	r := s.Next()
	if r.Epoch != 4 || r.Epochs != nil || !r.Map.Equal(m) || r.Intent == nil || r.Intent.Epochs != nil {
		t.Errorf("%+v", r)
	}
}

// TestOrdersOfOperators: what operators have ordered for ports and planes outlives the controller.
func TestOrdersOfOperators(t *testing.T) {
	one, two := circuit.Shift(4, 1), circuit.Shift(4, 2)
	trial := &controller.Trial{Planes: []int{0, 1}, Until: time.Unix(1e9, 0).UTC(), Who: "ann", Before: one, After: two}
	var s State
	apply := func(e controller.Event) { s.Apply(&e) }
	apply(controller.Event{Kind: controller.Switched, Epoch: 1, To: two})
	apply(controller.Event{Kind: controller.Measured, Epoch: 1,
		Baselines: map[int]controller.Baseline{2: {DBm: -2}, 3: {DBm: -1}}})
	apply(controller.Event{Kind: controller.Measured, Epoch: 1,
		Baselines: map[int]controller.Baseline{3: {DBm: -3, Drop: 1}}})
	apply(controller.Event{Kind: controller.Remapped, Epoch: 1, Port: 2,
		Moved: &controller.Moved{From: "3/19", To: "5/21"}})
	for port, failed := range []bool{0: false, 1: true, 3: true} {
		apply(controller.Event{Kind: controller.Excluded, Epoch: 1, Port: port, Err: "no light", FailedMove: failed})
	}
	apply(controller.Event{Kind: controller.Included, Epoch: 1, Port: 1})
	apply(controller.Event{Kind: controller.Commanded, Epoch: 1, Err: "disabled by ann", Trial: trial})
	text, err := EncodePlane(1, &s, Author{Name: "ocs1", Token: 3})
	require.NoError(t, err)
	_, back, err := DecodePlane(PlaneKey(1), text)
	require.NoError(t, err)
	require.NoError(t, back.Fits("planes/001", 1, 4, 2))
	r := back.Next()
	// The light of a port that was moved takes another path.
	if !reflect.DeepEqual(r.Baselines, map[int]controller.Baseline{3: {DBm: -3, Drop: 1}}) ||
		!reflect.DeepEqual(r.Moved, map[int]controller.Moved{2: {From: "3/19", To: "5/21"}}) ||
		!reflect.DeepEqual(r.FailedMoves, map[int]string{3: "no light"}) ||
		!reflect.DeepEqual(r.Trial, trial) || r.Disabled != "disabled by ann" {
		t.Errorf("%+v", r)
	}
	apply(controller.Event{Kind: controller.Excluded, Epoch: 1, Port: 3, Err: "as the device reports"})
	apply(controller.Event{Kind: controller.Commanded, Epoch: 1})
	if s.Trial != nil || s.Disabled != "" || len(s.FailedMoves) > 0 {
		t.Errorf("%+v", s)
	}
	if back.Fits("planes/001", 1, 3, 2) == nil {
		t.Error("it fits a fabric without port 3")
	}
}
