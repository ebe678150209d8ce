// Package solver solves a mixed-integer program with an installed program: CBC, HiGHS or Gurobi.
// DELTA's exact models and the comparison of SWOT's planner with CBC use it.
//
// Layer: inside plans, on plans/mip. It is the only package of plans that starts processes. Files are in a
// temporary directory. Solve removes it, and ends the processes, before it returns.
package solver
