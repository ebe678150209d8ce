// Package codesign chooses the algorithm of a collective together with the plan of its circuits. It searches for the
// algorithm, its parameters, the order of its steps and the planner. The best of them complete a call of a given size
// on a given fabric soonest.
//
// Planners take the schedule as given. However, the schedule determines how often circuits must change. The search
// changes three properties of it:
//
//   - Order: some algorithms may take their offsets, bits or digits in any order. Neighbouring steps that use the same
//     circuits save a reconfiguration. An example is an offset and its opposite on planes that hold a permutation and
//     its inverse.
//   - Mixing: a step of pairwise:k, bruck:r or direct contains k permutations. Each plane gets its own permutation, so
//     planes switch once for k exchanges and no flow is split.
//   - Radix: a larger radix has fewer steps with more flows each, which use more planes.
//
// Layer: inside collectives, above collectives/schedule and plans/planner. The package moves no data and performs no
// I/O. It makes no decisions during a call: all ranks must use the same algorithm, so the choice is made before.
package codesign
