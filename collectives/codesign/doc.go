// Package codesign chooses the algorithm of a collective together with the plan of its circuits:
// which algorithm, with which parameters, in which order of its steps, planned by which planner,
// completes a call of a given size on a given fabric soonest.
//
// The papers plan a schedule that somebody chose. What an algorithm leaves free, though, decides
// how often circuits must change. Three freedoms are used here. Order: offsets, bits and digits may
// be taken in any order, so that those that share circuits (an offset and its opposite, on planes that
// hold a permutation and its inverse) become neighbours. Mixing: a step that holds k permutations,
// as those of pairwise:k, bruck:r and direct do, gives every plane one of its own, so that planes
// switch once for k exchanges; k times fewer reconfigurations are exposed, and no flow is split. Radix: a
// larger one has fewer steps, of more flows each, for more planes.
//
// Layer: inside collectives, on collectives/schedule and plans/planner. It moves no bytes, performs
// no I/O, and decides nothing at run time: ranks must agree on an algorithm, so choices are made ahead.
package codesign
