// Package program lowers a schedule and a plan to a program per rank: instructions on byte ranges, with dependencies,
// in the order of each plane. docs/design/programs.md describes the steps.
//
//   - [Lower] lowers a collective. A long plan that repeats becomes sections (sections.go).
//   - [BuildP2P] and [LowerExchange] build the programs of sends and receives.
//   - [NewScript] lowers a collective for a library that executes sends and receives on streams.
//
// Layer: inside collectives. The package imports schedule and plans. It moves no data and performs no I/O. It
// must give the same result on every rank for the same arguments: only integers and single floating-point operations
// decide where flows are cut.
package program
