package shim

import (
	"reflect"
	"unsafe"
)

// inside returns a field of a structure of another package, for tests that look into it.
func inside[T any](structure any, fields ...string) *T {
	v := insideOf(structure, fields...)
	return (*T)(unsafe.Pointer(v.UnsafeAddr()))
}

// insideOf is inside for fields whose type has no name here.
func insideOf(structure any, fields ...string) reflect.Value {
	v := reflect.ValueOf(structure)
	for _, name := range fields {
		v = reflect.Indirect(v).FieldByName(name)
	}
	return v
}
