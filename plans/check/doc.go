// Package check says whether a plan is feasible for a problem, by the rules of the cost
// model alone.
//
// Layer: beside the planners, on plans. It shares only the cost formulas (plans/cost.go) with the planners and the
// simulator, so that it finds their errors. It must not repair plans, and it performs no I/O.
//
// An entry may take longer than the model's duration, but not less: a circuit that stays up longer carries the same
// bytes. So a plan made with higher costs is feasible, and one made with lower costs is not.
package check
