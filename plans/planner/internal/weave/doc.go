// Package weave searches for plans in which each plane has its own sequence of circuits. A plane serves some steps
// directly and others by forwarding, at the rate and latency that its routes allow: in configuration c it serves step
// i at bandwidth x theta(c, i). SWOT is the case of theta 0 or 1, HARVEST that of planes in lockstep. A search starts
// from scratch beside the other planners, then goes on from their plans. docs/planners.md says where it gains, and why.
//
// Layer: on rooms timing, timeline and swot of plans/planner. It must not run other planners: plans/planner does, and
// passes their plans.
package weave
