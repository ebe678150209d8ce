package datatype

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of ParseType and ParseOp.
var (
	ErrType = errors.New("datatype: unknown type")
	ErrOp   = errors.New("datatype: unknown operator")
)

// Names and sizes. The names are those of nccl-tests.
var (
	typeNames = [NumTypes]string{
		"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2",
	}
	typeSizes = [NumTypes]int{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}
	opNames   = [NumOps]string{"sum", "prod", "max", "min", "avg"}
)

// Valid reports whether t is one of the types.
func (t Type) Valid() bool { return t < NumTypes }

// String returns the name of t in nccl-tests.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return typeNames[t]
}

// Size returns the size of an element in bytes, 0 for an invalid type.
func (t Type) Size() int {
	if !t.Valid() {
		return 0
	}
	return typeSizes[t]
}

// Float reports whether t is a floating-point type.
func (t Type) Float() bool { return t >= Float16 && t < NumTypes }

// Valid reports whether o is one of the operators.
func (o Op) Valid() bool { return o < NumOps }

// String returns the name of o in nccl-tests.
func (o Op) String() string {
	if !o.Valid() {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}

// ParseType returns the type with a name. It returns [ErrType] for an unknown name.
func ParseType(name string) (Type, error) {
	for t, n := range typeNames {
		if n == name {
			return Type(t), nil
		}
	}
	return 0, fmt.Errorf("%w: %q is none of %s", ErrType, name, strings.Join(typeNames[:], ", "))
}

// ParseOp returns the operator with a name. It returns [ErrOp] for an unknown name.
func ParseOp(name string) (Op, error) {
	for o, n := range opNames {
		if n == name {
			return Op(o), nil
		}
	}
	return 0, fmt.Errorf("%w: %q is none of %s", ErrOp, name, strings.Join(opNames[:], ", "))
}
