package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// whole returns the element of a type that needs no conversion.
func whole(name string) element {
	load := func(i isa, m Mem) reg.VecVirtual {
		v := i.vec()
		VMOVUPS(m, v)
		return v
	}
	return single(name, bytesWhole, nil, load, func(_ isa, v reg.VecVirtual, m Mem) { VMOVUPS(v, m) })
}

// streamed is like whole with streaming stores.
func streamed(name string) element {
	e := whole(name + "Stream")
	e.stream = true
	e.store = func(_ isa, v []reg.VecVirtual, m Mem) { VMOVNTDQ(v[0], m) }
	return e
}

// single returns an element with one vector per load.
func single(name string, bytes func(isa) int, setup func(isa),
	load func(isa, Mem) reg.VecVirtual, store func(isa, reg.VecVirtual, Mem)) element {
	return element{
		name: name, bytes: bytes, setup: setup,
		load:  func(i isa, m Mem) []reg.VecVirtual { return []reg.VecVirtual{load(i, m)} },
		store: func(i isa, v []reg.VecVirtual, m Mem) { store(i, v[0], m) },
	}
}

func bytesWhole(i isa) int   { return i.bytes }
func bytesHalf(i isa) int    { return i.bytes / 2 }
func bytesQuarter(i isa) int { return i.bytes / 4 }

var f16 = single("F16", bytesHalf, nil,
	func(i isa, m Mem) reg.VecVirtual {
		v := i.vec()
		VCVTPH2PS(m, v)
		return v
	},
	// Rounds to nearest even, independent of MXCSR.
	func(_ isa, v reg.VecVirtual, m Mem) { VCVTPS2PH(U8(0), v, m) })

// bf16 loads even and odd elements into two vectors, which needs no move between lanes. It rounds as F32ToBF16 does;
// AVX512_BF16 would flush subnormals.
var bf16 = element{
	name:  "BF16",
	bytes: bytesWhole,
	setup: func(i isa) {
		for _, v := range []uint32{0x7fff, 1, 0x400000, 0xffff0000} {
			i.set(each32(v))
		}
	},
	load: func(i isa, m Mem) []reg.VecVirtual {
		even, odd := i.vec(), i.vec()
		VMOVUPS(m, odd)
		VPSLLD(U8(16), odd, even)
		i.and(get(each32(0xffff0000)), odd, odd)
		return []reg.VecVirtual{even, odd}
	},
	store: func(i isa, v []reg.VecVirtual, m Mem) {
		for k := range v {
			v[k] = bf16Round(i, v[k])
		}
		even, odd := v[0], v[1]
		VPSRLD(U8(16), even, even)
		if i.wide {
			i.blend(get(each32(0xffff0000)), odd, even)
		} else {
			VPBLENDW(U8(0xaa), odd, even, even)
		}
		VMOVUPS(even, m)
	},
}

// bf16Round returns v rounded in its upper half; the lower half is arbitrary.
func bf16Round(i isa, v reg.VecVirtual) reg.VecVirtual {
	r, nan := i.vec(), i.vec()
	VPSRLD(U8(16), v, r)
	i.and(get(each32(1)), r, r) // the last bit of the result
	VPADDD(get(each32(0x7fff)), r, r)
	VPADDD(v, r, r)
	i.or(get(each32(0x400000)), v, nan)
	i.sel("PS", unordered, v, v, nan, r)
	return r
}

// fp8 describes an 8-bit float: the bits of the mantissa, the bias of the exponent, the codes of the largest value and
// of NaN.
type fp8 struct {
	name           string
	mantissa, bias uint32
	largest, nan   uint32
}

var (
	e4m3 = fp8{"E4M3", 3, 7, 0x7e, 0x7f}
	e5m2 = fp8{"E5M2", 2, 15, 0x7b, 0x7e}
)

const abs = 1<<31 - 1

// Constants of function narrow in convert.go, whose steps store follows. round combines the rounding constant and the
// change of the exponent's bias in one addition.
func (f fp8) shift() uint64 { return uint64(23 - f.mantissa) }
func (f fp8) least() uint64 { return each32((127 - f.bias + 1) << 23) }
func (f fp8) magic() uint64 { return each32((127 - f.bias + uint32(f.shift()) + 1) << 23) }
func (f fp8) round() uint64 { return each32(1<<(f.shift()-1) - 1 - (127-f.bias)<<23) }

// Constants for loading E4M3 as halves: the mask that removes the second sign bit of an arithmetic shift, the scale,
// and the value of a NaN after scaling.
const (
	oneSign = 0xbfff
	scale8  = 0x43800000 // 256
	nan480  = 0x43f00000 // 480
)

func (f fp8) element() element {
	return single(f.name, bytesQuarter, f.setup, f.load, f.store)
}

func (f fp8) setup(i isa) {
	for _, v := range []uint64{each32(abs), f.least(), f.magic(), f.round(), each32(f.largest), each32(f.nan)} {
		i.set(v)
	}
	if f == e4m3 {
		for _, v := range []uint64{each16(oneSign), each32(scale8), each32(nan480)} {
			i.set(v)
		}
	}
}

// load converts via halves: E5M2 is the leading byte of a half, and E4M3 is a half with a shorter exponent. This avoids
// arithmetic on subnormal float32, which is slow.
func (f fp8) load(i isa, m Mem) reg.VecVirtual {
	h, v := i.half(), i.vec()
	VPMOVZXBW(m, h)
	VPSLLW(U8(8), h, h)
	if f == e5m2 {
		VCVTPH2PS(h, v)
		return v
	}
	VPSRAW(U8(1), h, h)
	one := get(each16(oneSign))
	if i.wide {
		VPANDD(one.AsY(), h, h)
	} else {
		VPAND(one.AsX(), h, h)
	}
	VCVTPH2PS(h, v)
	VMULPS(get(each32(scale8)), v, v)
	a := i.vec()
	i.and(get(each32(abs)), v, a)
	if i.wide {
		k := K()
		VPCMPEQD(get(each32(nan480)), a, k)
		VPORD(get(each32(abs)), v, k, v)
		return v
	}
	VPCMPEQD(get(each32(nan480)), a, a)
	VPSRLD(U8(1), a, a)
	VPOR(a, v, v)
	return v
}

func (f fp8) store(i isa, v reg.VecVirtual, m Mem) {
	a, r, sub := i.vec(), i.vec(), i.vec()
	i.and(get(each32(abs)), v, a)
	VPSLLD(Imm(31-f.shift()), a, r)
	VPSRLD(U8(31), r, r) // the last bit of the result
	VPADDD(get(f.round()), r, r)
	VPADDD(a, r, r)
	VPSRLD(Imm(f.shift()), r, r)
	VADDPS(get(f.magic()), a, sub)
	VPSUBD(get(f.magic()), sub, sub)
	if i.wide {
		k := K()
		VPCMPGTD(a, get(f.least()), k)
		VMOVDQA32(sub, k, r)
	} else {
		VPCMPGTD(a, get(f.least()), a)
		VBLENDVPS(a, sub, r, r)
	}
	VPMINUD(get(each32(f.largest)), r, r)
	i.sel("PS", unordered, v, v, get(each32(f.nan)), r)
	VPSRLD(U8(31), v, v)
	VPSLLD(U8(7), v, v)
	i.or(v, r, r)
	if i.wide {
		VPMOVDB(r, m)
		return
	}
	high := XMM()
	VEXTRACTI128(U8(1), r, high)
	VPACKUSDW(high, r.AsX(), r.AsX())
	VPACKUSWB(r.AsX(), r.AsX(), r.AsX())
	VMOVQ(r.AsX(), m)
}
