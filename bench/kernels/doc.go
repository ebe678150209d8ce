// Package kernels measures the memory bandwidth of reductions beside STREAM. It runs the kernels of package datatype
// and the folds of package sharedmem on buffers larger than the caches. By turns it runs STREAM's loops in C on as many
// threads.
//
// Layer: bench.
package kernels
