// Package exec executes programs over the planes of an endpoint. The calling goroutine polls all planes in one loop.
//
//   - [Run] drives tasks until they have finished (run.go). A [Task] is a program bound to a call (task.go).
//   - poll.go and receive.go move frames, frame.go checks their headers.
//   - forward.go and steer.go forward frames of other ranks; barrier.go takes part in reconfigurations.
//   - wait.go and trace.go report what a task waits for and what it has done.
//
// Layer: inside collectives. The package imports program, transport and wire. It makes no decisions: the
// program determines all transfers, and the call determines the epochs of the planes. It must not print, start
// goroutines or, after the first call of a shape, allocate.
package exec
