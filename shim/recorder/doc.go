// Package recorder has the flight recorder of a communicator: its last operations, their states, the wait of the
// operation in progress, and sums of completed operations for metrics.
//
// Layer: above dispatch, below session and all paths. Paths write, users and reports read. No code decides anything by
// what it reads here, except errors: which call another rank made instead, and that a call waits for a rank that has
// left.
package recorder
