// Package harvest is the planner HARVEST: it decides when to switch and to which circuits, all planes in lockstep, and
// ranks forward.
//
// Layer: on rooms offer and baseline of plans/planner. It must not know the planners swot and weave.
package harvest
