// Package picture draws the cores of clusters as SVG: wiring, logical topologies, the steps of a
// rewiring.
//
// Layer: part of plans/lumos. It performs no I/O.
package picture
