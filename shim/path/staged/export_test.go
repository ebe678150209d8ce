package staged

import (
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// This file exports internals to the tests of whole communicators in package staged_test.

// BriefMost is the most bytes that all ranks have in a step that a driver's thread begins.
const BriefMost = briefMost

// Back returns the stream that copies results of launches with several steps.
func Back(c *comm.Core) device.Stream { return slot.Of(c).back }

// OnWake has f called before each run of the goroutine of a worker.
func OnWake(c *comm.Core, f func()) {
	w := &slot.Of(c).worker
	w.mu.Lock()
	defer w.mu.Unlock()
	run := w.loop
	w.loop = func() {
		f()
		run()
	}
}

// Working reports whether a worker runs a step.
func Working(c *comm.Core) bool {
	w := &slot.Of(c).worker
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

// Spare returns how many unused launches a worker has.
func Spare(c *comm.Core) int {
	w := &slot.Of(c).worker
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.spare)
}

// Staging returns the staging memory of a communicator.
func Staging(c *comm.Core) memory.Pinned { return slot.Of(c).staging }
