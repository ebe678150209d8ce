// Package circuits is a rank's side of one communicator's planes with circuits. Only [Planes.Run] obtains planes, uses
// them and gives them back:
//
//	acquire -> settle -> execute -> done
//
// It waits and sends; a [Machine] without clock, socket or goroutine decides.
// docs/design/circuits.md has the protocol, its invariants and its failure cases.
//
// Layer: above ticket and endpoints, below session, stream and the paths. It chooses no plan and knows no program: an
// [Executor] runs the operation.
package circuits
