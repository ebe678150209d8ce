// Package flow computes how fast the circuits of several planes, taken as one graph, can carry all flows of a step at
// once. It returns theta, the maximum concurrent flow of HARVEST, with its routes and a dual bound that proves how
// good they are.
//
// Layer: inside plans/planner. It knows circuits and flows. It must not know steps, costs of switching or timelines,
// and it performs no I/O. The same input gives the same results.
//
// Method. Some renumberings of the ranks keep the circuits of every plane and the flows. They reduce the problem to one
// source per orbit of ranks and one variable per orbit of circuits (symmetry.go): averaging an optimum over them loses
// nothing. The rest is the dual of concurrent flow: lengths y >= 0 of circuits that minimize sum of capacity*y over sum
// of the flows' shortest distances. Any y bounds theta from above. Small instances are solved exactly, as a covering
// program whose rows are violated shortest paths (exact.go). Large ones are solved by path equilibration under the
// exponential lengths of Garg and Koenemann (equilibrate.go).
package flow
