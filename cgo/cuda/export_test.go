package cuda

import (
	"io/fs"

	"lightpath/collectives/datatype"
)

// ReplaceKernels has f's kernels loaded from now on, in contexts that have none of their type, until undo is called.
func ReplaceKernels(f fs.ReadFileFS) (undo func()) {
	kernels = f
	return func() { kernels = compiled }
}

// Kernels are those that are shipped.
var Kernels fs.ReadFileFS = compiled

// Native reports whether some devices have other kernels of a type than others.
func Native(t datatype.Type) bool { return native[t] > 0 }
