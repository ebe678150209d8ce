// Package sampling takes samples of several subjects by turns and summarizes them. All benchmarks use it, so that
// "median" and "spread" mean the same in every table.
//
// Layer: inside bench; it imports nothing of the project.
package sampling
