// Package dag holds the graph of one training iteration of a job whose pods are joined by circuits:
// computation, communication and dependencies. It also holds a run of that graph. Generators and importers
// write graphs; all other packages of plans/delta read them.
//
// Layer: the innermost package of plans/delta. It knows tasks, pods, links and circuits. It must not choose
// any of them, and it performs no I/O.
//
// Times are microseconds, sizes bytes, rates Gb/s (1e9 bits/s), all float64 and never rounded.
package dag
