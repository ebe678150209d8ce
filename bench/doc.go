// Package bench times collectives through the NCCL ABI and demonstrates them over an
// emulated optical fabric. Every number comes from rank processes of their own
// (lightpath-rank, a C program linked against libnccl.so.2); this package starts them,
// reads what they report, and turns it into tables, JSON and reports.
//
// Layer: top, beside cmd and cgo/core. It never calls the runtime in its own process.
package bench
