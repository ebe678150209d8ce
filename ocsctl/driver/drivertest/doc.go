// Package drivertest is the conformance suite of switch drivers. It tests every driver against the device model, which
// knows the true state.
//
// Layer: tests only.
package drivertest
