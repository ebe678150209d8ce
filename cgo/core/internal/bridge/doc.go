//go:build cgo

// Package bridge turns the calls of lp_core.h into calls of package shim: handles into communicators, C structures
// into Go ones, errors and panics into results with a text.
//
// Layer: between cgo/core, which holds only C declarations, and shim. It contains no C, so its tests need no C
// compiler, and it decides nothing.
package bridge
