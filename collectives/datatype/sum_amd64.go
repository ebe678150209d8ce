package datatype

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:noescape
func sumF32(dst, src unsafe.Pointer, n int)

//go:noescape
func sumF16(dst, src unsafe.Pointer, n int)

//go:noescape
func sumBF16(dst, src unsafe.Pointer, n int)

// accelerate replaces the sums of the types that training reduces by ones with the
// vector instructions of this CPU. Their results are the same.
func accelerate(k *Kernels) {
	if !cpu.X86.HasAVX2 {
		return
	}
	vectorSum(k, Float32, sumF32)
	vectorSum(k, Bfloat16, sumBF16)
	if cpu.X86.HasF16C {
		vectorSum(k, Float16, sumF16)
	}
}

// vectorSum installs sum, which takes a positive multiple of 16 elements of any alignment,
// in front of the portable kernel, which does the rest.
func vectorSum(k *Kernels, t Type, sum func(dst, src unsafe.Pointer, n int)) {
	size, rest := t.Size(), k.Reduce[t][Sum]
	f := func(dst, src []byte) {
		n := whole(dst, src, 16*size)
		if n > 0 {
			sum(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), n/size)
		}
		if n < len(dst) {
			rest(dst[n:], src[n:])
		}
	}
	k.Reduce[t][Sum], k.Reduce[t][Avg] = f, f
}
