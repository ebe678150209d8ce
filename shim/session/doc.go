// Package session runs groups of calls on host memory. It binds the program of each call to the call's buffers. It
// drives the tasks of all communicators of a group together, and explains why a task did not end.
//
// Layer: above dispatch, shares, circuits, onesided and stall, below the paths. It knows neither streams nor tickets:
// a communicator with circuits has an [OpticalPath].
package session
