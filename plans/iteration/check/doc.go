// Package check says whether an iteration plan is feasible, by the rules of docs/design/iteration.md alone.
//
// Layer: above plans/check, on the types of plans/iteration. It shares no code with the solver, so that it finds the
// solver's errors. It must not repair plans, and it performs no I/O.
package check
