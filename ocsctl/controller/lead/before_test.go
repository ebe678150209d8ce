package lead

import (
	"context"
	"errors"
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
)

// past is a history that gives two events at a time.
type past struct {
	events []controller.Event // the oldest first
	err    error
}

func (p *past) History(_ context.Context, q controller.Query) (page []controller.Event, _ error) {
	for _, e := range slices.Backward(p.events) {
		if len(page) < 2 && q.Match(&e) {
			page = append(page, e)
		}
	}
	return page, p.err
}

func TestRanksBefore(t *testing.T) {
	const (
		in, out, lost = controller.Attached, controller.Detached, controller.Lost
		took, settled = controller.TookOver, controller.Settled
	)
	type event struct {
		token uint64
		kind  controller.EventKind
		port  int
	}
	for name, c := range map[string]struct {
		events []event
		left   []bool
	}{
		"nothing is known": {nil, []bool{false, false, false}},
		"one left, one is there": {[]event{{1, in, 0}, {1, in, 1}, {1, controller.Switched, -1}, {1, out, 0}},
			[]bool{true, false, false}},
		"one came again": {[]event{{1, in, 0}, {1, out, 0}, {1, in, 0}}, []bool{false, false, false}},
		"never a rank":   {[]event{{1, took, -1}, {1, settled, -1}}, []bool{true, true, true}},
		"one came later": {[]event{{1, took, -1}, {1, settled, -1}, {1, in, 1}}, []bool{true, false, true}},
		"not all came back": {[]event{{1, in, 0}, {1, in, 1}, {2, took, -1}, {2, in, 1}, {2, settled, -1}},
			[]bool{true, false, true}},
		"one came after the grace time": {[]event{{1, in, 0}, {2, took, -1}, {2, settled, -1}, {2, in, 2}},
			[]bool{true, true, false}},
		"a rule ended while it waited": {[]event{{1, took, -1}, {1, settled, -1}, {1, in, 0}, {2, took, -1}},
			[]bool{false, true, true}},
		"two rules did": {[]event{{1, took, -1}, {1, settled, -1}, {1, in, 0}, {2, took, -1}, {3, took, -1},
			{3, in, 2}}, []bool{false, true, false}},
		"lost events": {[]event{{1, took, -1}, {1, settled, -1}, {1, lost, -1}, {1, in, 0}, {1, out, 0}},
			[]bool{true, false, false}},
		"another fabric's port":      {[]event{{1, took, -1}, {1, settled, -1}, {1, in, 9}}, []bool{true, true, true}},
		"the beginning is forgotten": {[]event{{1, in, 1}, {1, settled, -1}, {1, out, 0}}, []bool{true, false, false}},
	} {
		p := &past{}
		for i, e := range c.events {
			p.events = append(p.events, controller.Event{Seq: uint64(i + 1), Token: e.token, Kind: e.kind,
				Plane: -1, Port: e.port})
		}
		last := uint64(len(p.events))
		p.events = append(p.events, controller.Event{Seq: last + 1, Token: 99, Kind: in, Plane: -1, Port: 1}) // of this rule
		got, err := ranksBefore(t.Context(), p, 3, last)
		require.NoError(t, err)
		for port, rank := range got {
			if (rank == controller.RankLeft) != c.left[port] {
				t.Errorf("%s: %v; want %v to have left", name, got, c.left)
			}
		}
	}
	broken := errors.New("broken")
	if got, err := ranksBefore(t.Context(), &past{err: broken}, 3, 0); got != nil || !errors.Is(err, broken) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestLost: a port is lost if the last that its rank did was to disconnect without a goodbye.
func TestLost(t *testing.T) {
	p := &past{}
	for i, e := range []controller.Event{
		{Kind: controller.Attached, Port: 0}, {Kind: controller.Attached, Port: 1}, {Kind: controller.Attached, Port: 2},
		{Kind: controller.Detached, Port: 2, Err: "without goodbye"}, {Kind: controller.Attached, Port: 2},
		{Kind: controller.Detached, Port: 2}, {Kind: controller.Detached, Port: 1, Err: "without goodbye"},
	} {
		e.Seq, e.Plane = uint64(i+1), -1
		p.events = append(p.events, e)
	}
	want := []controller.RankBefore{controller.RankUnknown, controller.RankLost, controller.RankLeft}
	if got, err := ranksBefore(t.Context(), p, 3, 7); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
