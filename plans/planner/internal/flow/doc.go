// Package flow answers how fast the circuits of several planes, taken as one graph, can
// carry all flows of a step at once: theta, the maximum concurrent flow of HARVEST, with
// the routes that attain it and a dual bound that proves how good they are.
//
// Layer: inside plans/planner. It knows circuits and flows. It must not know steps, costs of
// switching or timelines, and it performs no I/O. The same input gives the same results.
//
// Method. Renumberings of the ranks that keep the circuits of every plane and the flows
// reduce the problem to one source per orbit of ranks and one variable per orbit of circuits
// (symmetry.go): an optimum is averaged over them without loss. What remains is the dual of
// concurrent flow, lengths y >= 0 of circuits that minimize sum of capacity*y over sum of the flows'
// shortest distances, which any y bounds from above. Small instances are solved exactly as
// a covering program whose rows are violated shortest paths (exact.go); large ones by
// path equilibration under the exponential lengths of Garg and Koenemann (equilibrate.go).
package flow
