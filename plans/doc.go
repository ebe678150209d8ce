// Package plans holds the plan of a collective on an optical fabric: the problem it
// answers, its representation, its codec and the cost model that every planner, checker
// and simulator of the project shares.
//
// Layer: innermost, beside ocsctl. It imports nothing of the project but plans/circuit
// and performs no I/O: files are read and written by plans/cache, plans/fabric and the
// commands.
//
// Times are microseconds, sizes bytes, rates Gb/s (1e9 bits/s), all float64 and never
// rounded. Comparisons use [Tolerance].
package plans
