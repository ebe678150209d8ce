package datatype

import (
	"encoding/binary"
	"sync"
)

// Kernels of the 16- and 8-bit floats.

// reduceHalf converts blocks to float32, combines them and rounds the results.
func reduceHalf(t Type, op Op, dst, src []byte) {
	n := whole(dst, src, 2)
	dst, src = dst[:n], src[:n]
	var a, b [block]float32
	for len(dst) > 0 {
		n := min(len(dst), 2*block)
		x, y := a[:n/2], b[:n/2]
		widen(t, x, dst[:n])
		widen(t, y, src[:n])
		combine(op, x, y)
		round(t, dst[:n], x)
		dst, src = dst[n:], src[n:]
	}
}

// scaleHalf is like reduceHalf, for a product with a factor.
func scaleHalf(t Type, dst, src []byte, factor float64) {
	n := whole(dst, src, 2)
	dst, src = dst[:n], src[:n]
	f := float32(factor)
	if t == Float16 {
		f = F16ToF32(F32ToF16(f))
	} else {
		f = BF16ToF32(F32ToBF16(f))
	}
	var a [block]float32
	for len(dst) > 0 {
		n := min(len(dst), 2*block)
		x := a[:n/2]
		widen(t, x, src[:n])
		scale(x, x, f)
		round(t, dst[:n], x)
		dst, src = dst[n:], src[n:]
	}
}

// widen converts 2*len(d) bytes, four elements per load. The order of the four depends on the byte order; round
// restores it.
func widen(t Type, d []float32, s []byte) {
	half := t == Float16
	for len(d) >= 4 && len(s) >= 8 {
		v, q := binary.NativeEndian.Uint64(s), (*[4]float32)(d)
		if half {
			q[0], q[1] = F16ToF32(uint16(v)), F16ToF32(uint16(v>>16))
			q[2], q[3] = F16ToF32(uint16(v>>32)), F16ToF32(uint16(v>>48))
		} else {
			q[0], q[1] = BF16ToF32(uint16(v)), BF16ToF32(uint16(v>>16))
			q[2], q[3] = BF16ToF32(uint16(v>>32)), BF16ToF32(uint16(v>>48))
		}
		d, s = d[4:], s[8:]
	}
	for i := range d {
		v := binary.NativeEndian.Uint16(s[2*i:])
		if half {
			d[i] = F16ToF32(v)
		} else {
			d[i] = BF16ToF32(v)
		}
	}
}

// round is the inverse of widen.
func round(t Type, d []byte, s []float32) {
	half := t == Float16
	for len(d) >= 8 && len(s) >= 4 {
		q := (*[4]float32)(s)
		var v uint64
		if half {
			v = uint64(F32ToF16(q[0])) | uint64(F32ToF16(q[1]))<<16 |
				uint64(F32ToF16(q[2]))<<32 | uint64(F32ToF16(q[3]))<<48
		} else {
			v = uint64(F32ToBF16(q[0])) | uint64(F32ToBF16(q[1]))<<16 |
				uint64(F32ToBF16(q[2]))<<32 | uint64(F32ToBF16(q[3]))<<48
		}
		binary.NativeEndian.PutUint64(d, v)
		d, s = d[8:], s[4:]
	}
	for i, f := range s {
		if half {
			binary.NativeEndian.PutUint16(d[2*i:], F32ToF16(f))
		} else {
			binary.NativeEndian.PutUint16(d[2*i:], F32ToBF16(f))
		}
	}
}

// fp8Table holds the result of an operator for every pair of 8-bit values.
type fp8Table struct {
	once sync.Once
	of   *[1 << 16]uint8 // [dst<<8 | src]
}

// fp8Tables are filled at first use. Each takes 64 KiB and about a millisecond.
var fp8Tables [2][Avg]fp8Table

func fp8Kernel(t Type, op Op) ReduceFunc {
	table := &fp8Tables[t-Float8E4M3][op]
	return func(dst, src []byte) {
		table.once.Do(func() { table.fill(t, op) })
		of := table.of
		src = src[:min(len(dst), len(src))]
		dst = dst[:len(src)]
		for i, v := range src {
			dst[i] = of[uint16(dst[i])<<8|uint16(v)]
		}
	}
}

func (f *fp8Table) fill(t Type, op Op) {
	f.of = new([1 << 16]uint8)
	for i := range f.of {
		d := [1]float32{fp8ToF32(t, uint8(i>>8))}
		combine(op, d[:], []float32{fp8ToF32(t, uint8(i))})
		f.of[i] = f32ToFP8(t, d[0])
	}
}

func scaleFP8(t Type, dst, src []byte, factor float64) {
	f := fp8ToF32(t, f32ToFP8(t, float32(factor)))
	src = src[:min(len(dst), len(src))]
	for i, v := range src {
		dst[i] = f32ToFP8(t, fp8ToF32(t, v)*f)
	}
}

func fp8ToF32(t Type, v uint8) float32 {
	if t == Float8E4M3 {
		return E4M3ToF32(v)
	}
	return E5M2ToF32(v)
}

func f32ToFP8(t Type, f float32) uint8 {
	if t == Float8E4M3 {
		return F32ToE4M3(f)
	}
	return F32ToE5M2(f)
}
