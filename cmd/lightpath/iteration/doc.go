// Package iteration has the command "iteration": it makes the trace of an iteration, and plans all calls of a trace
// together.
//
// Layer: a room of commands, on cli and jobflags. plans/iteration plans, shim/recording reads recordings.
package iteration
