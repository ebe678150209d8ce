// Package picture draws the optical core of a cluster as SVG: wirings, logical topologies, and the
// steps of a rewiring.
//
// Layer: plans/lumos, above lumos and matrix, on internal/svg. It performs no I/O.
package picture
