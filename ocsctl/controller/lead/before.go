package lead

import (
	"context"
	"slices"
	"time"

	"lightpath/ocsctl/controller"
)

// historyTimeout bounds how long a takeover waits for the history.
const historyTimeout = 2 * time.Second

// ranksBefore returns the ranks of the ports when the rule before ended. It reads the history up to event last.
func ranksBefore(
	ctx context.Context, h controller.History, ports int, last uint64,
) ([]controller.RankBefore, error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	r := backward{ranks: make([]controller.RankBefore, ports), known: make([]bool, ports)}
	q := controller.Query{
		Plane: controller.AnyPlane, Before: last + 1,
		Kinds: []controller.EventKind{
			controller.Attached, controller.Detached, controller.Settled, controller.TookOver, controller.Lost,
		},
	}
	for {
		events, err := h.History(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range events {
			if r.note(&events[i]) {
				return r.ranks, nil
			}
		}
		if len(events) == 0 {
			return r.ranks, nil
		}
		q.Before = events[len(events)-1].Seq
	}
}

// backward finds the ranks of ports from events that are read from the newest to older ones.
type backward struct {
	ranks   []controller.RankBefore // by port
	known   []bool                  // by port: an event has told its rank
	settled bool                    // the rule with this token ended its grace time: ranks of earlier rules are gone
	token   uint64
}

// note takes the next older event, and reports whether no older one is needed.
func (r *backward) note(e *controller.Event) (enough bool) {
	switch {
	case e.Kind == controller.Lost:
		return true // the lost events may include the Attached event of any rank
	case e.Kind == controller.Settled:
		r.settled, r.token = true, e.Token
	case e.Kind == controller.TookOver:
		if r.settled && e.Token == r.token {
			for port, known := range r.known {
				if !known {
					r.ranks[port] = controller.RankLeft
				}
			}
			return true
		}
	case e.Port < len(r.known) && !r.known[e.Port]:
		r.known[e.Port] = true
		if e.Kind == controller.Detached {
			r.ranks[e.Port] = controller.RankLeft
			if e.Err != "" {
				r.ranks[e.Port] = controller.RankLost
			}
		}
	}
	return !slices.Contains(r.known, false)
}
