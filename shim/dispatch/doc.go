// Package dispatch turns the shape of a call into a schedule, and keeps the programs of a communicator by shape.
//
// Layer: above calls, below planning and session. It sends nothing. Its choice is a pure function of facts that all
// ranks share, so ranks never choose differently. The answers of a tuner plugin are such facts: see [Tune].
package dispatch
