// Package timing finds the least time of a pattern: which unit works in which step, at which rate, after which switch.
// [Timing.Solve] is exact, a linear program. [Timing.Greedy] is fast and never below it. [Split] divides one step.
//
// Layer: a leaf of plans/planner, on plans/internal/lp. It must not know problems, circuits or plans. Callers describe
// a pattern in times and rates.
//
// Searches call it in their inner loops. It allocates only until its buffers have grown.
package timing
