// Package circuits is a rank's side of the planes with circuits of one communicator. [Planes.Run] is the only place that
// obtains planes, uses them and gives them back:
//
//	acquire -> settle -> execute -> done
//
// docs/design/circuits.md has the protocol, its invariants and its failure cases.
//
// Layer: above ticket and endpoints, below session, stream and the paths. It chooses no plan and knows no program: an
// [Executor] does the operation.
package circuits
