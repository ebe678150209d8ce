// Package matching holds the combinatorics of partial permutations that planners share:
// edge colouring of bipartite multigraphs and maximum-weight matching.
//
// Layer: a leaf inside plans. It knows senders, receivers and weights, neither problems
// nor plans; it performs no I/O and never reads a clock. Everything here is
// deterministic: equal input, equal result. Senders and receivers are numbered from 0;
// callers guarantee that the numbers they pass are in range.
package matching

// None marks a sender or receiver that is not matched.
const None = -1
