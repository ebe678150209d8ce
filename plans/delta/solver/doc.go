// Package solver solves a mixed-integer program with an installed program: CBC, HiGHS or Gurobi.
// Only DELTA's exact models use it.
//
// Layer: inside plans/delta. It is the only package of plans that starts processes. Files are in a
// temporary directory. Solve removes it, and ends the processes, before it returns.
package solver
