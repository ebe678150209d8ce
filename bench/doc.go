// Package bench times collectives through the NCCL ABI and demonstrates them over an emulated optical fabric.
// Rank processes (lightpath-rank, a C program linked against libnccl.so.2) make every measurement. This package
// starts them, reads their reports and writes tables, JSON and pages.
//
// Layer: top, beside cmd and cgo/core. It never calls the runtime in its own process.
package bench
