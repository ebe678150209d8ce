//go:build cgo

// Package plugins loads plugins of NCCL and calls them: network plugins for collectives/transport/netplugin,
// profiler plugins for shim/recorder, and tuner plugins for shim/dispatch.
//
// Layer: beside cgo/core, which passes it to shim. It decides nothing: its callers choose plugins, devices and peers.
package plugins
