// Package solver has a mixed-integer program solved by a program that is installed: CBC,
// HiGHS or Gurobi. Nothing that plans needs one; DELTA's exact models do.
//
// Layer: inside plans, and the one place there that starts processes. Files live in a
// temporary directory that is removed before Solve returns, and so do the processes.
package solver
