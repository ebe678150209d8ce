// Package device has the interfaces between the runtime and the drivers of accelerators: kinds of memory, streams,
// events, copies and kernels. cgo/cuda implements them for CUDA.
//
// Layer: shim. It knows nothing of communicators.
package device
