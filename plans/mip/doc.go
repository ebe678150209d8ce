// Package mip holds mixed-integer programs as data: built once, written in the formats that
// solvers read, and checked against an assignment. Layer: inside plans. It solves nothing.
package mip
