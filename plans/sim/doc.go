// Package sim plays a plan on the cost model's fabric, event by event.
//
// Layer: beside the planners, on plans. Like a runtime, it takes from a plan only the order of the entries on each
// plane (and the length of a hold). It ignores the planned times and starts everything as early as P1, P2 and P3 allow.
// For a plan without slack the result is the plan's own timeline; for any feasible plan it is no later. plans/check,
// not this package, checks that every byte is carried. It performs no I/O.
package sim
