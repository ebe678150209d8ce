package nic

// This file exports internals to the tests of whole communicators in package nic_test.

// Of returns the path of a communicator.
var Of = slot.Of

// Calls returns how many collectives a path has started.
func Calls(x *Path) uint64 { return x.calls }

// Traffic returns the bytes that a path has sent.
func Traffic(x *Path) int64 { return x.end.Traffic() }

// ReplayBegins returns the token of the place where replays of the last captured launch begin.
func ReplayBegins(x *Path) uintptr { return x.launch.replay.first.Part(0) }

// Flushing returns how many flushes a path waits for.
func Flushing(x *Path) int64 { return x.work.flushing.Load() }
