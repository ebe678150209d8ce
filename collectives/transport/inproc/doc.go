// Package inproc is the packet transport between ranks that are goroutines of one process. Tests use it.
//
// It runs the data path of internal/mesh over heap memory. It must not start goroutines or open files.
package inproc
