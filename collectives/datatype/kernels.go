package datatype

import (
	"sync"
	"unsafe"
)

// ReduceFunc combines element by element: dst = dst op src. Both have the same length, a
// whole number of elements (what is beyond the shorter one, or the last whole element, is
// left alone), and do not overlap. Any alignment will do; aligned data is faster.
//
// Results do not depend on the lengths or alignment of calls, so a message may be cut
// anywhere between elements. Integers wrap. 16- and 8-bit floats are computed in float32
// and rounded once, to nearest even, FP8 saturating (infinities too). Max and Min ignore a
// NaN whose partner is a number, and take -0 for less than +0; of two NaN they keep src's.
// A sum or product with one NaN keeps its sign and, quiet, its payload (FP8 has none); of
// two, those of either. All operators are commutative bit for bit but for two NaN.
//
// Safe for concurrent use on different dst; it does not allocate.
type ReduceFunc func(dst, src []byte)

// CombineFunc sets dst = a op b, element by element: what [ReduceFunc] makes of a and b, without
// a pass to copy a first. All have the same length; dst may be a, and overlaps nothing else.
type CombineFunc func(dst, a, b []byte)

// ScaleFunc sets dst = src x factor, element by element; src may be dst, the rest is as for
// [ReduceFunc]. The factor is first rounded to float32 and then to the type, as NCCL rounds
// that of ncclAvg and pre-multiplied sums; for integers it is truncated to an integer.
type ScaleFunc func(dst, src []byte, factor float64)

// DivFunc divides every element of dst by n >= 1, truncating towards zero: the end of an
// average of integers.
type DivFunc func(dst []byte, n int64)

// Kernels is a table of kernels. [Portable] fills one in Go; faster ones with the same
// results may replace its entries before it is shared.
type Kernels struct {
	// Reduce combines. Avg combines as Sum does; for floats the contributions have been
	// scaled by 1/n before, for integers the sum is divided by n after.
	Reduce [NumTypes][NumOps]ReduceFunc
	// Combine has the results of Reduce; nil where that is all there is.
	Combine [NumTypes][NumOps]CombineFunc
	// CombineStream is Combine with results past the caches; nil where there is none.
	CombineStream [NumTypes][NumOps]CombineFunc
	Scale       [NumTypes]ScaleFunc
	Div         [NumTypes]DivFunc // nil for floats
}

// Portable returns the kernels written in Go, in a table of the caller's own.
func Portable() *Kernels {
	k := new(Kernels)
	integer[int8](k, Int8)
	integer[uint8](k, Uint8)
	integer[int32](k, Int32)
	integer[uint32](k, Uint32)
	integer[int64](k, Int64)
	integer[uint64](k, Uint64)
	for op := range NumOps {
		k.Reduce[Float32][op] = func(dst, src []byte) { reduceBytes[float32](op, dst, src) }
		k.Reduce[Float64][op] = func(dst, src []byte) { reduceBytes[float64](op, dst, src) }
		k.Reduce[Float16][op] = func(dst, src []byte) { reduceHalf(Float16, op, dst, src) }
		k.Reduce[Bfloat16][op] = func(dst, src []byte) { reduceHalf(Bfloat16, op, dst, src) }
		k.Reduce[Float8E4M3][op] = fp8Kernel(Float8E4M3, op)
		k.Reduce[Float8E5M2][op] = fp8Kernel(Float8E5M2, op)
	}
	k.Scale[Float32] = func(dst, src []byte, f float64) { scaleBytes(dst, src, float32(f)) }
	k.Scale[Float64] = func(dst, src []byte, f float64) { scaleBytes(dst, src, f) }
	k.Scale[Float16] = func(dst, src []byte, f float64) { scaleHalf(Float16, dst, src, f) }
	k.Scale[Bfloat16] = func(dst, src []byte, f float64) { scaleHalf(Bfloat16, dst, src, f) }
	k.Scale[Float8E4M3] = func(dst, src []byte, f float64) { scaleFP8(Float8E4M3, dst, src, f) }
	k.Scale[Float8E5M2] = func(dst, src []byte, f float64) { scaleFP8(Float8E5M2, dst, src, f) }
	return k
}

// fastest is what Reduce, Scale and DivInt look into.
var fastest = sync.OnceValue(func() *Kernels {
	k := Portable()
	if l := levels(); len(l) > 0 {
		l[len(l)-1].accelerate(k)
	}
	return k
})

// level is a set of vector instructions that this CPU has.
type level struct {
	name       string
	accelerate func(*Kernels) // replaces portable kernels by faster ones with the same results
}

// Reduce returns the fastest kernel here of an operator and a type, nil where one of them is
// not Valid.
func Reduce(op Op, t Type) ReduceFunc {
	if !op.Valid() || !t.Valid() {
		return nil
	}
	return fastest().Reduce[t][op]
}

// Combine returns the fastest combining kernel of an operator and a type, nil where one of them is
// not Valid.
func Combine(op Op, t Type) CombineFunc {
	if !op.Valid() || !t.Valid() {
		return nil
	}
	if f := fastest().Combine[t][op]; f != nil {
		return f
	}
	return combineBy(fastest().Reduce[t][op])
}

// CombineStream returns a combining kernel whose results do not stay in the caches, as those of [Stream]; nil where there is none
// for that operator and type.
func CombineStream(op Op, t Type) CombineFunc {
	if !op.Valid() || !t.Valid() {
		return nil
	}
	if op == Avg {
		op = Sum
	}
	return fastest().CombineStream[t][op]
}

// combineBy makes a combining kernel of a reducing one.
func combineBy(reduce ReduceFunc) CombineFunc {
	return func(dst, a, b []byte) {
		if unsafe.SliceData(dst) != unsafe.SliceData(a) {
			copy(dst, a)
		}
		reduce(dst, b)
	}
}

// Scale returns the fastest scaling kernel of a type, nil where t is not Valid.
func Scale(t Type) ScaleFunc {
	if !t.Valid() {
		return nil
	}
	return fastest().Scale[t]
}

// ScaleUint64 returns a kernel that multiplies 64-bit integers, of either sign, by factor,
// which need not be a whole number that float64 holds; the kernel's own factor is ignored.
func ScaleUint64(factor uint64) ScaleFunc {
	return func(dst, src []byte, _ float64) { scaleBytes(dst, src, factor) }
}

// DivInt returns the fastest dividing kernel of an integer type, nil for other types.
func DivInt(t Type) DivFunc {
	if !t.Valid() {
		return nil
	}
	return fastest().Div[t]
}

func integer[T integers](k *Kernels, t Type) {
	for op := range NumOps {
		k.Reduce[t][op] = func(dst, src []byte) { reduceBytes[T](op, dst, src) }
	}
	k.Scale[t] = func(dst, src []byte, f float64) { scaleBytes(dst, src, T(int64(f))) }
	k.Div[t] = divBytes[T]
}
