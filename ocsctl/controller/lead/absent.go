package lead

import (
	"context"
	"slices"
	"time"

	"lightpath/ocsctl/controller"
)

// historyTimeout bounds how long a takeover waits for the history.
const historyTimeout = 2 * time.Second

// absent returns which ports had no rank when the rule before ended, and which of them were lost: their rank
// disconnected without a goodbye. It reads the history up to event last. If the history does not show it, the port may
// have had a rank.
func absent(ctx context.Context, h controller.History, ports int, last uint64) (gone, lost []bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	a := absence{gone: make([]bool, ports), lost: make([]bool, ports), known: make([]bool, ports)}
	q := controller.Query{
		Plane: controller.AnyPlane, Before: last + 1,
		Kinds: []controller.EventKind{
			controller.Attached, controller.Detached, controller.Settled, controller.TookOver, controller.Lost,
		},
	}
	for {
		events, err := h.History(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		for i := range events {
			if a.note(&events[i]) {
				return a.gone, a.lost, nil
			}
		}
		if len(events) == 0 {
			return a.gone, a.lost, nil
		}
		q.Before = events[len(events)-1].Seq
	}
}

// absence collects which ports had no rank, from events that are read from the newest to older ones.
type absence struct {
	gone, lost, known []bool // by port
	settled           bool   // the rule with this token ended its grace time: ranks of earlier rules are gone
	token             uint64
}

// note takes the next older event, and reports whether no older one is needed.
func (a *absence) note(e *controller.Event) (enough bool) {
	switch {
	case e.Kind == controller.Lost:
		return true // the lost events may include the Attached event of any rank
	case e.Kind == controller.Settled:
		a.settled, a.token = true, e.Token
	case e.Kind == controller.TookOver:
		if a.settled && e.Token == a.token {
			for port, known := range a.known {
				a.gone[port] = a.gone[port] || !known
			}
			return true
		}
	case e.Port < len(a.gone) && !a.known[e.Port]:
		a.gone[e.Port], a.known[e.Port] = e.Kind == controller.Detached, true
		a.lost[e.Port] = e.Kind == controller.Detached && e.Err != ""
	}
	return !slices.Contains(a.known, false)
}
