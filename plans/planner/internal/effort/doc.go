// Package effort says how long a planner may search: in operations, so that results repeat, and in parts of the time
// until the deadline.
//
// Layer: a leaf of plans/planner. It must not know problems or plans.
package effort
