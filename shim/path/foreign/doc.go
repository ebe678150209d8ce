// Package foreign runs collectives on streams as sends and receives of another libnccl, with Lightpath's kernels
// between them. All ranks must have made the communicators of that library.
//
// Layer: a path, above stream and session. It names no symbol of the other library and uses it only through [Library].
package foreign
