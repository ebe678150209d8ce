package datatype

import (
	"sync"
	"unsafe"
)

// ReduceFunc sets dst = dst op src, element by element. Both have the same length, a whole number of elements, and do
// not overlap. It ignores bytes beyond the shorter one and beyond the last whole element. Aligned data is faster.
//
// Results do not depend on lengths or alignment, so a message may be cut between any elements. Integers wrap. 16- and
// 8-bit floats are computed in float32 and rounded once, to nearest even; FP8 saturates, also infinities.
//
// Max and Min ignore a NaN if the other element is a number, and -0 is less than +0. Of two NaN they keep that of src.
// A sum or product with one NaN is that NaN, quiet, with its sign and payload (FP8 has no payload). With two NaN it is
// one of them. All operators are commutative bit for bit, except for two NaN.
//
// A ReduceFunc is safe for concurrent use on different dst. It does not allocate.
type ReduceFunc func(dst, src []byte)

// CombineFunc sets dst = a op b, element by element, with the results of [ReduceFunc]. All have the same length. dst
// may be a, and overlaps no other buffer.
type CombineFunc func(dst, a, b []byte)

// ScaleFunc sets dst = src * factor, element by element. src may be dst; otherwise it is like [ReduceFunc]. It rounds
// the factor to float32 and then to the type, as NCCL does for ncclAvg and pre-multiplied sums. For integers it
// truncates the factor.
type ScaleFunc func(dst, src []byte, factor float64)

// DivFunc divides every element of dst by n >= 1 and truncates towards zero. It is the last part of an average of
// integers.
type DivFunc func(dst []byte, n int64)

// Kernels is a table of kernels. [Portable] fills it with kernels in Go. Faster kernels with the same results may
// replace them before the table is shared.
type Kernels struct {
	// Avg has the kernels of Sum. For an average, the caller scales floats by 1/n before, or divides the sum of integers
	// by n afterwards.
	Reduce [NumTypes][NumOps]ReduceFunc
	// Combine is nil for kernels that only have Reduce.
	Combine [NumTypes][NumOps]CombineFunc
	// CombineStream is Combine with streaming stores; nil if there is none.
	CombineStream [NumTypes][NumOps]CombineFunc
	Scale         [NumTypes]ScaleFunc
	Div           [NumTypes]DivFunc // nil for floats
}

// Portable returns a new table of the kernels in Go.
func Portable() *Kernels {
	k := new(Kernels)
	integer[int8](k, Int8)
	integer[uint8](k, Uint8)
	integer[int32](k, Int32)
	integer[uint32](k, Uint32)
	integer[int64](k, Int64)
	integer[uint64](k, Uint64)
	for op := range Avg { // average sets the kernels of Avg, the last operator
		k.Reduce[Float32][op] = func(dst, src []byte) { reduceBytes[float32](op, dst, src) }
		k.Reduce[Float64][op] = func(dst, src []byte) { reduceBytes[float64](op, dst, src) }
		k.Reduce[Float16][op] = func(dst, src []byte) { reduceHalf(Float16, op, dst, src) }
		k.Reduce[Bfloat16][op] = func(dst, src []byte) { reduceHalf(Bfloat16, op, dst, src) }
		k.Reduce[Float8E4M3][op] = fp8Kernel(Float8E4M3, op)
		k.Reduce[Float8E5M2][op] = fp8Kernel(Float8E5M2, op)
	}
	k.average()
	k.Scale[Float32] = func(dst, src []byte, f float64) { scaleBytes(dst, src, float32(f)) }
	k.Scale[Float64] = func(dst, src []byte, f float64) { scaleBytes(dst, src, f) }
	k.Scale[Float16] = func(dst, src []byte, f float64) { scaleHalf(Float16, dst, src, f) }
	k.Scale[Bfloat16] = func(dst, src []byte, f float64) { scaleHalf(Bfloat16, dst, src, f) }
	k.Scale[Float8E4M3] = func(dst, src []byte, f float64) { scaleFP8(Float8E4M3, dst, src, f) }
	k.Scale[Float8E5M2] = func(dst, src []byte, f float64) { scaleFP8(Float8E5M2, dst, src, f) }
	return k
}

// average sets the kernels of Avg.
func (k *Kernels) average() {
	for t := range NumTypes {
		k.Reduce[t][Avg], k.Combine[t][Avg] = k.Reduce[t][Sum], k.Combine[t][Sum]
		k.CombineStream[t][Avg] = k.CombineStream[t][Sum]
	}
}

// fastest returns the table of the fastest kernels of this CPU.
var fastest = sync.OnceValue(func() *Kernels {
	k := Portable()
	if l := levels(); len(l) > 0 {
		l[len(l)-1].accelerate(k)
	}
	return k
})

// level is a vector instruction set of this CPU.
type level struct {
	name       string
	accelerate func(*Kernels) // replaces portable kernels by faster kernels with the same results
}

// Reduce returns the fastest kernel, or nil if the operator or the type is invalid.
func Reduce(op Op, t Type) ReduceFunc {
	if !op.Valid() || !t.Valid() {
		return nil
	}
	return fastest().Reduce[t][op]
}

// Combine returns the fastest kernel, or nil if the operator or the type is invalid.
func Combine(op Op, t Type) CombineFunc {
	if !op.Valid() || !t.Valid() {
		return nil
	}
	if f := fastest().Combine[t][op]; f != nil {
		return f
	}
	return combineBy(fastest().Reduce[t][op])
}

// CombineStream returns a kernel with streaming stores (see [Stream]), or nil if there is none for the operator and
// type.
func CombineStream(op Op, t Type) CombineFunc {
	if !op.Valid() || !t.Valid() {
		return nil
	}
	return fastest().CombineStream[t][op]
}

// combineBy returns a CombineFunc that copies a to dst and then calls reduce.
func combineBy(reduce ReduceFunc) CombineFunc {
	return func(dst, a, b []byte) {
		if unsafe.SliceData(dst) != unsafe.SliceData(a) {
			copy(dst, a)
		}
		reduce(dst, b)
	}
}

// Scale returns the fastest kernel, or nil if the type is invalid.
func Scale(t Type) ScaleFunc {
	if !t.Valid() {
		return nil
	}
	return fastest().Scale[t]
}

// ScaleUint64 returns a kernel that multiplies signed or unsigned 64-bit integers by factor, which float64 may not be
// able to represent. The kernel ignores its own factor argument.
func ScaleUint64(factor uint64) ScaleFunc {
	return func(dst, src []byte, _ float64) { scaleBytes(dst, src, factor) }
}

// DivInt returns the fastest kernel of an integer type, or nil for other types.
func DivInt(t Type) DivFunc {
	if !t.Valid() {
		return nil
	}
	return fastest().Div[t]
}

func integer[T integers](k *Kernels, t Type) {
	for op := range Avg {
		k.Reduce[t][op] = func(dst, src []byte) { reduceBytes[T](op, dst, src) }
	}
	k.Scale[t] = func(dst, src []byte, f float64) { scaleBytes(dst, src, T(int64(f))) }
	k.Div[t] = divBytes[T]
}
