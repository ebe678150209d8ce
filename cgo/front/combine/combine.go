// Package combine holds the C kernels with which libnccl.so.2 computes short calls. Only tests use it in Go: they
// compare the kernels with package datatype.
//
// Layer: part of cgo/front.
package combine

// #cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra -I${SRCDIR}/..
// #include "combine.h"
//
// static const struct lp_kernels* kernels(int plain, int type) {
//   return (plain ? lp_kernels_any : lp_kernels()) + type;
// }
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

// Combine sets dst = a op b, all of the same length. op is not Avg.
func (k Kernels) Combine(t datatype.Type, op datatype.Op, dst, a, b []byte) {
	C.combine(C.int(k), C.int(t), C.int(op), at(dst), at(a), at(b), C.size_t(len(dst)))
}

// Scale sets dst = src x factor. factor is one element.
func (k Kernels) Scale(t datatype.Type, dst, src, factor []byte) {
	C.scale(C.int(k), C.int(t), at(dst), at(src), at(factor), C.size_t(len(dst)))
}

// Divide divides dst by n. It reports false for a type without division.
func (k Kernels) Divide(t datatype.Type, dst []byte, n int) bool {
	return C.divide(C.int(k), C.int(t), at(dst), C.unsigned(n), C.size_t(len(dst))) != 0
}

// CopyPast copies src to dst, of the same length, past the caches.
func CopyPast(dst, src []byte) { C.lp_copy_past(at(dst), at(src), C.size_t(len(dst))) }
