// Package matching colours the edges of bipartite multigraphs and finds matchings of maximum weight, for planners.
//
// Layer: a leaf inside plans. It knows senders, receivers and weights, but neither problems nor plans. It performs no
// I/O and never reads a clock. Equal input gives equal results. Senders and receivers are numbered from 0, and callers
// pass only numbers in range.
package matching

// None marks a sender or receiver that is not matched.
const None = -1
