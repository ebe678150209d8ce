// Package recording reads the files that the recorder of calls (cgo/record) writes in each process of a job, and makes
// the trace of an iteration of them.
//
// Layer: on shim/calls, shim/dispatch and plans/iteration/learn, for commands. It plans nothing and opens no files.
package recording
