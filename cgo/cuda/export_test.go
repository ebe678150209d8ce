package cuda

import (
	"io/fs"

	"lightpath/collectives/datatype"
)

// ReplaceKernels makes the package load modules from f, in contexts that have none of the type, until undo is called.
func ReplaceKernels(f fs.FS) (undo func()) {
	kernels = func() fs.FS { return f }
	return func() { kernels = unpack }
}

// Kernels returns the modules of the archive.
func Kernels() fs.FS { return unpack() }

// Native reports whether devices of different architectures use different modules for a type.
func Native(t datatype.Type) bool { return native[t] > 0 }
