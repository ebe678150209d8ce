// Package arbiter is the leader's side of planes with circuits, as a state machine. It takes events and returns
// actions. It gathers the ranks' requests, obtains planes, and answers with tickets. docs/design/circuits.md has the
// protocol.
//
// Layer: above ticket and planning, below arbiter/live, which performs the actions. A [Machine] reads no clock, no
// socket and no flight recorder, and starts no goroutine. A test or a simulator steps it. The same events give the
// same actions.
package arbiter
