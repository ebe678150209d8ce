// Package mip holds mixed-integer programs as data: built once, written in the formats that
// solvers read, and checked against an assignment. It solves nothing and belongs to plans.
package mip
