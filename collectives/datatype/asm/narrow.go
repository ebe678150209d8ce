package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// narrow is a 16- or 8-bit format for Max and Min, which need no arithmetic: without the sign, codes have the order of
// their values. Codes above inf are NaN.
type narrow struct {
	bits int
	inf  uint16
	// fix changes a result as rounding would: a NaN becomes quiet or canonical and, if rounding saturates, an infinity
	// becomes the largest value. The bits of m are set for NaN.
	fix func(i isa, n narrow, r, m reg.VecVirtual)
}

var (
	f16Codes  = narrow{16, 0x7c00, func(i isa, _ narrow, r, m reg.VecVirtual) { quiet(i, 0x200, r, m) }}
	bf16Codes = narrow{16, 0x7f80, func(i isa, _ narrow, r, m reg.VecVirtual) { quiet(i, 0x40, r, m) }}
	e4m3Codes = narrow{8, 0x7e, nil}
	e5m2Codes = narrow{8, 0x7c, canonical}
)

func quiet(i isa, bit uint16, r, m reg.VecVirtual) {
	i.and(get(each16(bit)), m, m)
	i.or(m, r, r)
}

// canonical is fix of E5M2: a NaN becomes 0x7e, and an infinity the code below it.
func canonical(i isa, n narrow, r, m reg.VecVirtual) {
	a, b := i.vec(), i.vec()
	i.and(get(n.each(n.abs())), r, a)
	i.equals(n, get(n.each(n.inf)), a, b)
	VPADDB(b, r, r)
	i.and(get(n.each(0x80)), r, b)
	i.or(get(n.each(0x7e)), b, b)
	i.blend(m, b, r)
}

func (n narrow) abs() uint16 { return 1<<(n.bits-1) - 1 }

// each repeats an element over 64 bits.
func (n narrow) each(v uint16) uint64 {
	if n.bits == 8 {
		v |= v << 8
	}
	return each16(v)
}

func (n narrow) setup(i isa) {
	for _, v := range []uint16{n.abs(), n.inf} {
		i.set(n.each(v))
	}
	switch n.inf {
	case f16Codes.inf:
		i.set(each16(0x200))
	case bf16Codes.inf:
		i.set(each16(0x40))
	case e5m2Codes.inf:
		i.set(n.each(0x80))
		i.set(n.each(0x7e))
	}
}

func (n narrow) ops() []operator {
	return []operator{
		n.extreme("max", n.of(VPMAXSB, VPMAXSW)),
		n.extreme("min", n.of(VPMINSB, VPMINSW)),
	}
}

// of returns the instruction for bytes or words.
func (n narrow) of(b, w func(...Op)) func(...Op) {
	if n.bits == 8 {
		return b
	}
	return w
}

func (n narrow) extreme(name string, f func(...Op)) operator {
	return operator{name, n.setup, func(i isa, w, v reg.VecVirtual) reg.VecVirtual {
		r, o := i.vec(), i.vec()
		n.order(i, w, r)
		n.order(i, v, o)
		f(o, r, r)
		n.order(i, r, r)
		n.ifNaN(i, v, w, r)
		n.ifNaN(i, w, v, r)
		if n.fix != nil {
			m := i.vec()
			i.and(get(n.each(n.abs())), r, m)
			i.greater(n, m, get(n.each(n.inf)), m)
			n.fix(i, n, r, m)
		}
		return r
	}}
}

// order converts codes to integers of the same order, with -0 just below +0, and back.
func (n narrow) order(i isa, x, d reg.VecVirtual) {
	a, sign := get(n.each(n.abs())), i.vec()
	switch {
	case n.bits == 8 && i.wide:
		k := K()
		VPMOVB2M(x, k)
		VPXORD(a, x, sign)
		VPBLENDMB(sign, x, k, d)
		return
	case n.bits == 8:
		VPXOR(sign, sign, sign)
		VPCMPGTB(x, sign, sign)
	default:
		VPSRAW(U8(15), x, sign)
	}
	i.and(a, sign, sign)
	i.xor(sign, x, d)
}

// ifNaN replaces the elements of d by those of s for which x is NaN.
func (n narrow) ifNaN(i isa, x, s, d reg.VecVirtual) {
	a, inf := i.vec(), get(n.each(n.inf))
	i.and(get(n.each(n.abs())), x, a)
	switch {
	case !i.wide:
		i.greater(n, a, inf, a)
		i.blend(a, s, d)
	case n.bits == 8:
		k := K()
		VPCMPGTB(inf, a, k)
		VMOVDQU8(s, k, d)
	default:
		k := K()
		VPCMPGTW(inf, a, k)
		VMOVDQU16(s, k, d)
	}
}
