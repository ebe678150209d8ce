// Package recorder has the flight recorder of a communicator: its last operations, what became of them, and what the
// operation in progress waits for.
//
// Layer: above dispatch, below session and all paths. Paths write, users and reports read. No code decides anything by
// what it reads here, except which call another rank made instead, for an error.
package recorder
