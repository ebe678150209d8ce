// Package check says whether a plan is feasible for a problem, by the rules of the cost
// model alone.
//
// Layer: beside the planners, on plans. It shares the cost formulas (plans/cost.go) and
// nothing else with the planners and the simulator, so that an error in one of them is an
// error here and not a shared belief. It repairs nothing and performs no I/O.
//
// Where the model gives a duration, an entry may take longer but not shorter: a circuit
// that stays up longer carries the same bytes. So a plan made on a stricter reading of a
// cost is feasible, and one on a laxer reading is not.
package check
