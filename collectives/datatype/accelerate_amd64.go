package datatype

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:generate go -C asm run . -pkg datatype -out ../vectors_amd64.s -stubs ../vectors_amd64.go

// levels returns the instruction sets of this CPU for which there are kernels, the fastest last. AVX2 includes F16C,
// which every CPU with AVX2 has. AVX-512 means F, BW, DQ and VL, which all servers with AVX-512 have.
func levels() []level {
	var l []level
	if cpu.X86.HasAVX2 && cpu.X86.HasF16C {
		l = append(l, level{"avx2", func(k *Kernels) { vectorize(k, false) }})
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL {
			l = append(l, level{"avx512", func(k *Kernels) { vectorize(k, true) }})
		}
	}
	return l
}

// step is the granularity of the assembly in bytes: n is a positive multiple of it. Any alignment is allowed.
const step = streamStep

// Signatures of the assembly: dst = a op b, and dst = src * factor, for n bytes.
type (
	reducer  = func(dst, a, b *byte, n int)
	scaler32 = func(dst, src *byte, n int, factor float32)
)

// vectorize replaces kernels by assembly with the same results, bit for bit.
func vectorize(k *Kernels, wide bool) {
	for _, v := range reducers() {
		f := v.avx2
		if wide {
			f = v.avx512
		}
		if f != nil {
			portable := k.Reduce[v.t][v.op]
			k.Reduce[v.t][v.op] = vectorReduce(f, portable)
			k.Combine[v.t][v.op] = vectorCombine(f, combineBy(portable))
		}
	}
	for _, v := range streamReducers() {
		f, align := v.avx2, uintptr(32)
		if wide {
			f, align = v.avx512, 64
		}
		k.CombineStream[v.t][v.op] = vectorStream(f, align, v.t.Size(), k.Combine[v.t][v.op])
	}
	for _, v := range scalers() {
		f := v.avx2
		if wide {
			f = v.avx512
		}
		k.Scale[v.t] = vectorScale(v.rounded, f, k.Scale[v.t])
	}
	f64 := scaleF64AVX2
	if wide {
		f64 = scaleF64AVX512
	}
	k.Scale[Float64] = vectorScale(func(f float64) float64 { return f }, f64, k.Scale[Float64])
	k.average()
}

// vectorReduce calls f for whole steps and the portable kernel for the rest.
func vectorReduce(f reducer, portable ReduceFunc) ReduceFunc {
	return func(dst, src []byte) {
		n := whole(dst, src, step)
		if n > 0 {
			at := unsafe.SliceData(dst)
			f(at, at, unsafe.SliceData(src), n)
		}
		if n < len(dst) {
			portable(dst[n:], src[n:])
		}
	}
}

// vectorCombine is like vectorReduce for three buffers.
func vectorCombine(f reducer, portable CombineFunc) CombineFunc {
	return func(dst, a, b []byte) {
		n := min(whole(dst, a, step), whole(dst, b, step))
		if n > 0 {
			f(unsafe.SliceData(dst), unsafe.SliceData(a), unsafe.SliceData(b), n)
		}
		if n < len(dst) {
			portable(dst[n:], a[n:], b[n:])
		}
	}
}

// vectorStream is like vectorCombine for f with streaming stores, which begin at the first aligned vector of dst.
func vectorStream(f reducer, align uintptr, size int, portable CombineFunc) CombineFunc {
	return func(dst, a, b []byte) {
		head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & (align - 1))
		if head%size != 0 || head+step > len(dst) {
			portable(dst, a, b)
			return
		}
		body := (len(dst) - head) &^ (step - 1)
		f(&dst[head], &a[head], &b[head], body)
		portable(dst[:head], a[:head], b[:head])
		portable(dst[head+body:], a[head+body:], b[head+body:])
	}
}

// streamers returns the streamers of this CPU, the best last. dst must be aligned to 64 bytes, and n must be a positive
// multiple of 64.
func streamers() []streamer {
	return []streamer{{"avx2", streamAVX2}, {"avx512", streamAVX512}}[:len(levels())]
}

// vectorScale is like vectorReduce for a product with the rounded factor.
func vectorScale[F floats](rounded func(float64) F, f func(dst, src *byte, n int, factor F),
	portable ScaleFunc) ScaleFunc {
	return func(dst, src []byte, factor float64) {
		n := whole(dst, src, step)
		if n > 0 {
			f(unsafe.SliceData(dst), unsafe.SliceData(src), n, rounded(factor))
		}
		if n < len(dst) {
			portable(dst[n:], src[n:], factor)
		}
	}
}

type vectorScaler struct {
	t            Type
	rounded      func(float64) float32
	avx2, avx512 scaler32
}

func scalers() []vectorScaler {
	return []vectorScaler{
		{Float32, func(f float64) float32 { return float32(f) }, scaleF32AVX2, scaleF32AVX512},
		{Float16, func(f float64) float32 { return F16ToF32(F32ToF16(float32(f))) }, scaleF16AVX2, scaleF16AVX512},
		{Bfloat16, func(f float64) float32 { return BF16ToF32(F32ToBF16(float32(f))) }, scaleBF16AVX2, scaleBF16AVX512},
		{Float8E4M3, func(f float64) float32 { return E4M3ToF32(F32ToE4M3(float32(f))) }, scaleE4M3AVX2, scaleE4M3AVX512},
		{Float8E5M2, func(f float64) float32 { return E5M2ToF32(F32ToE5M2(float32(f))) }, scaleE5M2AVX2, scaleE5M2AVX512},
	}
}

// streamReducers returns the reducers with streaming stores.
func streamReducers() []vectorReducer {
	return []vectorReducer{
		{Float32, Sum, sumF32StreamAVX2, sumF32StreamAVX512},
		{Float64, Sum, sumF64StreamAVX2, sumF64StreamAVX512},
		{Int8, Sum, sumI8StreamAVX2, sumI8StreamAVX512},
		{Uint8, Sum, sumI8StreamAVX2, sumI8StreamAVX512},
		{Int32, Sum, sumI32StreamAVX2, sumI32StreamAVX512},
		{Uint32, Sum, sumI32StreamAVX2, sumI32StreamAVX512},
		{Int64, Sum, sumI64StreamAVX2, sumI64StreamAVX512},
		{Uint64, Sum, sumI64StreamAVX2, sumI64StreamAVX512},
	}
}

type vectorReducer struct {
	t            Type
	op           Op
	avx2, avx512 reducer // nil if portable is faster
}

func reducers() []vectorReducer {
	return []vectorReducer{
		{Float32, Sum, sumF32AVX2, sumF32AVX512},
		{Float32, Prod, prodF32AVX2, prodF32AVX512},
		{Float32, Max, maxF32AVX2, maxF32AVX512},
		{Float32, Min, minF32AVX2, minF32AVX512},
		{Float64, Sum, sumF64AVX2, sumF64AVX512},
		{Float64, Prod, prodF64AVX2, prodF64AVX512},
		{Float64, Max, maxF64AVX2, maxF64AVX512},
		{Float64, Min, minF64AVX2, minF64AVX512},
		{Float16, Sum, sumF16AVX2, sumF16AVX512},
		{Float16, Prod, prodF16AVX2, prodF16AVX512},
		{Float16, Max, maxF16AVX2, maxF16AVX512},
		{Float16, Min, minF16AVX2, minF16AVX512},
		{Bfloat16, Sum, sumBF16AVX2, sumBF16AVX512},
		{Bfloat16, Prod, prodBF16AVX2, prodBF16AVX512},
		{Bfloat16, Max, maxBF16AVX2, maxBF16AVX512},
		{Bfloat16, Min, minBF16AVX2, minBF16AVX512},
		{Float8E4M3, Sum, nil, sumE4M3AVX512},
		{Float8E4M3, Prod, nil, prodE4M3AVX512},
		{Float8E4M3, Max, maxE4M3AVX2, maxE4M3AVX512},
		{Float8E4M3, Min, minE4M3AVX2, minE4M3AVX512},
		{Float8E5M2, Sum, sumE5M2AVX2, sumE5M2AVX512},
		{Float8E5M2, Prod, prodE5M2AVX2, prodE5M2AVX512},
		{Float8E5M2, Max, maxE5M2AVX2, maxE5M2AVX512},
		{Float8E5M2, Min, minE5M2AVX2, minE5M2AVX512},
		{Int8, Sum, sumI8AVX2, sumI8AVX512},
		{Int8, Prod, prodI8AVX2, prodI8AVX512},
		{Int8, Max, maxI8AVX2, maxI8AVX512},
		{Int8, Min, minI8AVX2, minI8AVX512},
		{Uint8, Sum, sumI8AVX2, sumI8AVX512},
		{Uint8, Prod, prodI8AVX2, prodI8AVX512},
		{Uint8, Max, umaxI8AVX2, umaxI8AVX512},
		{Uint8, Min, uminI8AVX2, uminI8AVX512},
		{Int32, Sum, sumI32AVX2, sumI32AVX512},
		{Int32, Prod, prodI32AVX2, prodI32AVX512},
		{Int32, Max, maxI32AVX2, maxI32AVX512},
		{Int32, Min, minI32AVX2, minI32AVX512},
		{Uint32, Sum, sumI32AVX2, sumI32AVX512},
		{Uint32, Prod, prodI32AVX2, prodI32AVX512},
		{Uint32, Max, umaxI32AVX2, umaxI32AVX512},
		{Uint32, Min, uminI32AVX2, uminI32AVX512},
		{Int64, Sum, sumI64AVX2, sumI64AVX512},
		{Int64, Prod, prodI64AVX2, prodI64AVX512},
		{Int64, Max, maxI64AVX2, maxI64AVX512},
		{Int64, Min, minI64AVX2, minI64AVX512},
		{Uint64, Sum, sumI64AVX2, sumI64AVX512},
		{Uint64, Prod, prodI64AVX2, prodI64AVX512},
		{Uint64, Max, umaxI64AVX2, umaxI64AVX512},
		{Uint64, Min, uminI64AVX2, uminI64AVX512},
	}
}
