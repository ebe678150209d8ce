// Package bound proves lower bounds of the time of a problem. They hold for every plan, also for plans that no planner
// makes.
//
// Layer: on room model of plans/planner, beside the planners. It must not read plans: a bound depends on the problem
// alone.
package bound
