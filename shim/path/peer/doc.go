// Package peer runs calls on the streams of devices that reach each other's memory. Kernels and copies exchange data
// through that memory. The streams of all ranks wait for each other with tokens in a page that they share.
//
// Layer: a path, above stream. No CPU takes part in a call after the launch, except the watcher.
package peer
