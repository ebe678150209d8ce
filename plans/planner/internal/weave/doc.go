// Package weave searches for plans in which each plane has its own sequence of circuits, and ranks forward. A search
// starts from scratch beside the other planners, then goes on from their plans.
//
// Layer: on rooms timing, timeline and swot of plans/planner. It must not run other planners: plans/planner does, and
// passes their plans.
package weave
