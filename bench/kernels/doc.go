// Package kernels measures the memory bandwidth of reductions beside STREAM. The kernels of package datatype and the
// folds of package sharedmem run on buffers larger than the caches, by turns with STREAM's loops in C on as many
// threads.
//
// Layer: bench.
package kernels
