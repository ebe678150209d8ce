// Package plans holds plans of collectives on an optical fabric: the problem and the plan with their codecs, and the
// cost model that every planner, checker and simulator of the project shares.
//
// Layer: innermost, beside ocsctl. Of the project, it imports only plans/circuit. It performs no I/O: plans/cache,
// plans/fabric and the commands read and write files.
//
// Times are microseconds, sizes bytes, rates Gb/s (1e9 bits/s), all float64 and never
// rounded. Comparisons use [Tolerance].
package plans
