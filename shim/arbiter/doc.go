// Package arbiter is the leader's side of planes with circuits as a machine: events in, actions out. It gathers what ranks
// ask for, obtains planes, and answers with tickets. docs/design/circuits.md has the protocol.
//
// Layer: above ticket and planning, below arbiter/live, which performs the actions. A [Machine] reads no clock, no socket
// and no flight recorder, and starts no goroutine: a test or a simulator steps it, and the same events give the same
// actions.
package arbiter
