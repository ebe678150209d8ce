// Package offer says how all planes together serve a piece of a step on given circuits, and how long that takes. A
// [Table] holds these times by piece and by setting of all planes. Planners lower the times that they need by searches
// for routes.
//
// Layer: on rooms model, timing and timeline of plans/planner, and on internal/flow and topology. It must not decide
// when planes switch.
package offer
