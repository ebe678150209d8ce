// Package combine is what the front of Lightpath (libnccl.so.2) computes by itself, in C: the kernels of short calls.
// In Go it is there for tests alone, which hold the kernels against package datatype.
//
// Layer: part of cgo/front.
package combine

// #cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra -I${SRCDIR}/..
// #include "combine.h"
//
// static const struct lp_kernels* kernels(int plain, int type) { return (plain ? lp_kernels_any : lp_kernels()) + type; }
// static void combine(int plain, int type, int op, void* dst, const void* a, const void* b, size_t n) {
//   kernels(plain, type)->combine[op](dst, a, b, n);
// }
// static void scale(int plain, int type, void* dst, const void* src, const void* factor, size_t n) {
//   kernels(plain, type)->scale(dst, src, factor, n);
// }
// static int divide(int plain, int type, void* dst, unsigned by, size_t n) {
//   if (kernels(plain, type)->divide == NULL) return 0;
//   kernels(plain, type)->divide(dst, by, n);
//   return 1;
// }
import "C"

import (
	"unsafe"

	"lightpath/collectives/datatype"
)

// Kernels is one of the versions that are compiled.
type Kernels int

// The versions: for this processor, and for any.
const (
	Vectors Kernels = iota
	Plain
)

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// Combine sets dst = a op b; op is no average. All have the same length.
func (k Kernels) Combine(t datatype.Type, op datatype.Op, dst, a, b []byte) {
	C.combine(C.int(k), C.int(t), C.int(op), at(dst), at(a), at(b), C.size_t(len(dst)))
}

// Scale sets dst = src x factor, which is one element.
func (k Kernels) Scale(t datatype.Type, dst, src, factor []byte) {
	C.scale(C.int(k), C.int(t), at(dst), at(src), at(factor), C.size_t(len(dst)))
}

// Divide divides dst by n, and reports whether there is division for t.
func (k Kernels) Divide(t datatype.Type, dst []byte, n int) bool {
	return C.divide(C.int(k), C.int(t), at(dst), C.unsigned(n), C.size_t(len(dst))) != 0
}
