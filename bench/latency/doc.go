// Package latency measures the times of single calls: small AllReduces back to back, on an otherwise idle machine and
// beside programs that allocate memory and collect garbage in Go and in Python.
//
// Layer: bench.
package latency
