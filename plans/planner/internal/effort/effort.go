package effort

import (
	"context"
	"time"
)

// Search says how much a planner searches, and for which plans.
type Search struct {
	Effort      time.Duration // amount of search, as time on one ordinary core
	Seed        int64         // of the pseudo-random search
	SinglePlane bool          // no joint transmits
}

// flopsPerSecond converts an effort to operations. It is well below the rate of one core, so that the budget, and not
// the clock, usually ends a search.
const flopsPerSecond = 2.4e8

// Operations converts the effort to operations of a search that counts them.
func (o Search) Operations() float64 { return o.Effort.Seconds() * flopsPerSecond }

// Within returns a context that ends after a part of the remaining time of ctx.
func Within(ctx context.Context, part float64) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(part*float64(time.Until(end))))
}

// Sooner returns a context that ends earlier than ctx, by the given duration.
func Sooner(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-by))
}
