// Package recorder has the flight recorder of a communicator: its last operations, their states, and the wait of the
// operation in progress.
//
// Layer: above dispatch, below session and all paths. Paths write, users and reports read. No code decides anything by
// what it reads here, except errors: which call another rank made instead, and that a call waits for a rank that has
// left.
package recorder
