// Package swot is the planner SWOT. It divides steps unevenly over the planes. So some planes switch while others
// transfer. Ranks do not forward.
//
// Layer: on rooms timing, timeline and baseline of plans/planner. It must not know the planners harvest and weave.
package swot
