//go:build cgo

// Package verbs implements the verbs of collectives/transport/rdma over libibverbs. It loads the library at run time: a
// program runs without it, and gets an error when it asks for a device.
// Layer: beside cgo/core, which passes it to shim. It decides nothing: its callers choose devices, ports and addresses.
package verbs
