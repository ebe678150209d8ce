// Package dag holds the computation-communication graph of one training iteration of a
// job whose pods an optical layer joins, and what a run of it looks like: the representation
// that generators and importers write, and that the simulator, the planners, the solver's
// formulation, the validator and the pictures of plans/delta read.
//
// Layer: plans, innermost of the job level. It knows tasks, pods, links and circuits, not
// how any of them is chosen, and performs no I/O.
//
// Times are microseconds, sizes bytes, rates Gb/s (1e9 bits/s), all float64 and never rounded.
package dag
