// Package delta decides how many circuits join each pair of pods during a training iteration, so
// that the iteration is short: DELTA's heuristic search (Ye et al., arXiv 2603.28096), its bounds, the
// baselines it is compared with, and a choice of rates that needs no solver.
//
// Layer: plans, above its sub-packages. It performs no I/O; commands read jobs and write results.
//
// A [Planner] reduces a job once and answers questions about it. A topology is judged by simulation
// (plans/delta/sim) under one of two rules of [Sharing]; whoever wants proof has the
// schedule of the result judged by plans/delta/check.
//
// Results repeat for a seed, on any number of cores: searches count operations, and the
// context only stops them.
package delta
