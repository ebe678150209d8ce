package cuda

import "io/fs"

// ReplaceKernels has f's kernels loaded from now on, in contexts that have none of their type, until undo is called.
func ReplaceKernels(f fs.ReadFileFS) (undo func()) {
	kernels = f
	return func() { kernels = compiled }
}

// Kernels are those that are shipped.
var Kernels fs.ReadFileFS = compiled
