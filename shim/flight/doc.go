// Package flight reads dumps of flight recorders. It has their file format, compares the dumps of all ranks, and draws
// them.
//
// Layer: a leaf below shim and cmd/lightpath, without imports of the project. shim records.
package flight
