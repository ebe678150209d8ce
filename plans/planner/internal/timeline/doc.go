// Package timeline writes plans: entry by entry, each as early as its plane and the step barrier allow, with the
// durations of the cost model. It also says which of two plans is better, in a loop too.
//
// Layer: on room model of plans/planner. It must not choose what to write.
package timeline
