//go:build cgo

// Package cuda implements [device.Driver] by the CUDA driver that the program has loaded. In a program without one it
// answers that no memory and no stream is of a device.
//
// Layer: cgo. It uses only the driver's interface (libcuda.so.1), by names that CUDA 12 and later have.
package cuda
