package controller

import (
	"context"
	"slices"
	"time"
)

// Query selects events of the history. The zero value but for Plane selects all of plane 0;
// [AllEvents] selects everything.
type Query struct {
	Plane  int         // AnyPlane: events of every plane and of none
	Since  time.Time   // not before; zero: as far back as there is
	Before uint64      // only events with a lower Seq; 0: from the newest
	Kinds  []EventKind // empty: all
	Limit  int         // most events; 0: as many as the history gives at a time
}

// AnyPlane is the plane of a [Query] for all planes.
const AnyPlane = -1

// AllEvents is the query for everything, newest first.
func AllEvents() Query { return Query{Plane: AnyPlane} }

// Match reports whether the query selects e.
func (q *Query) Match(e *Event) bool {
	return (q.Plane == AnyPlane || q.Plane == e.Plane) && !e.Time.Before(q.Since) &&
		(q.Before == 0 || e.Seq < q.Before) && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind))
}

// History is what journals remember, newest first. It may be called from any goroutine, also
// at a controller that is not in charge.
type History interface {
	History(ctx context.Context, q Query) ([]Event, error)
}
