// Package iteration plans all collectives of a training iteration together. It chooses the plan of each call, and the
// switches in the gaps between calls. So a call can begin on the circuits that the call before leaves. See
// docs/design/iteration.md.
//
// Layer: inside plans, above planner and iteration/trace. It knows no collective: callers pass the steps of a call. It
// must not be imported by planners. It performs no I/O.
//
// Times are microseconds, as in package plans.
package iteration
