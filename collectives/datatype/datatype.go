// Package datatype names the element types and reduction operators of the NCCL ABI and
// reduces, scales and converts them without C: in Go, which defines the results, and in
// assembly where the CPU has AVX2 or AVX-512, with the same results to the bit. Folder asm
// holds what generates the assembly. It is a leaf: no I/O, no state.
package datatype

// Type is an element type; the values are ncclDataType_t's.
type Type uint8

// The element types.
const (
	Int8 Type = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	Bfloat16
	Float8E4M3
	Float8E5M2
	NumTypes
)

// Op is a reduction operator; the values are ncclRedOp_t's.
type Op uint8

// The reduction operators.
const (
	Sum Op = iota
	Prod
	Max
	Min
	Avg
	NumOps
)
