// Package delta decides how many circuits join each pair of pods during a training iteration, so that the
// iteration is short. It has DELTA's heuristic search (Ye et al., arXiv 2603.28096), its bounds, the paper's
// baselines, and a choice of rates that needs no solver.
//
// Layer: plans/delta, above its sub-packages. It must not import planners of collectives, and it performs no
// I/O: commands read jobs and write results.
//
// A [Planner] reduces a job once and answers questions about it. It rates a topology by simulation
// (plans/delta/sim) under one of two rules of [Sharing]. plans/delta/check can check the schedule of a result
// independently.
//
// A seed gives the same result on any number of cores. Searches count operations, and the context only stops
// them.
package delta
