// Package learn finds the iteration that repeats in the calls of a run, and makes its trace.
//
// Layer: inside plans, on plans/iteration/trace. It plans nothing and performs no I/O.
package learn
