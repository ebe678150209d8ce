package datatype

// Type is an element type, with the values of ncclDataType_t.
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

// Op is a reduction operator, with the values of ncclRedOp_t.
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
