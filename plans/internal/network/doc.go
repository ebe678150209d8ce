// Package network finds integral flows with lower and upper bounds on the arcs of a directed
// graph: any one (Dinic's method), or one of least cost (primal-dual: shortest paths in
// reduced costs, then a blocking flow on the arcs that lie on them).
//
// Layer: a leaf inside plans. It knows nodes and arcs; it performs no I/O and reads no clock. Equal
// input, equal result.
package network
