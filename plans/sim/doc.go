// Package sim plays a plan on the cost model's fabric, event by event.
//
// Layer: beside the planners, on plans. It takes from a plan only what a runtime would,
// the order of the entries on each plane (and how long a hold lasts), ignores the planned
// times, and starts everything as early as P1, P2 and P3 allow. For a plan without slack
// the result is the plan's own timeline; for any feasible plan it is no later. Whether
// every byte is carried is the business of plans/check. No I/O.
package sim
