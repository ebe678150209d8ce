package controller

import (
	"context"
	"slices"
	"time"
)

// Query selects events of the history. The zero value selects all events of plane 0, [AllEvents] all events.
type Query struct {
	Plane  int         // AnyPlane: all planes, and events of no plane
	Since  time.Time   // the earliest time; zero: no bound
	Before uint64      // only events with a lower Seq; 0: no bound
	Kinds  []EventKind // empty: all
	Ports  []int       // empty: all; otherwise events about one of these ports, see [Event.About]
	Limit  int         // most events to return; 0: the bound of the history
}

// AnyPlane is the Plane of a [Query] for all planes.
const AnyPlane = -1

// AllEvents returns the query for all events.
func AllEvents() Query { return Query{Plane: AnyPlane} }

// Match reports whether the query selects e.
func (q *Query) Match(e *Event) bool {
	return (q.Plane == AnyPlane || q.Plane == e.Plane) && !e.Time.Before(q.Since) &&
		(q.Before == 0 || e.Seq < q.Before) && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)) &&
		(len(q.Ports) == 0 || slices.ContainsFunc(q.Ports, e.About))
}

// About reports whether the event is about a port: about its rank, its job, or a circuit from or to it that moves.
func (e *Event) About(port int) bool {
	if e.Port == port || e.Job != nil && slices.Contains(e.Job.Ports, port) {
		return true
	}
	return len(e.To) > port && port >= 0 && (len(e.From) != len(e.To) || e.From[port] != e.To[port] ||
		slices.Index(e.From, port) != slices.Index(e.To, port))
}

// History returns the recorded events.
type History interface {
	// History returns events, the newest first. It may be called from any goroutine, also at a controller that is
	// not in charge.
	// The answer may have fewer events than q.Limit although there are older ones; see [ReadHistory].
	History(ctx context.Context, q Query) ([]Event, error)
}

// ReadHistory reads up to q.Limit events, the newest first. It calls read, which is that of a [History], until there
// are so many, or no older ones.
func ReadHistory(ctx context.Context, read func(context.Context, Query) ([]Event, error), q Query) ([]Event, error) {
	var all []Event
	for want := q.Limit; len(all) < want; {
		q.Limit = want - len(all)
		page, err := read(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 || q.Before != 0 && page[0].Seq >= q.Before {
			break
		}
		all = append(all, page...)
		q.Before = page[len(page)-1].Seq
	}
	return all, nil
}
