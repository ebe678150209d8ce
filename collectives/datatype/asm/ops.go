package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// of returns the instruction for single or double precision.
func of[T any](p string, ps, pd T) T {
	if p == "PD" {
		return pd
	}
	return ps
}

// plain returns an operator that is one instruction in both instruction sets. The first operand is w, so the result of
// two NaN has its payload.
func plain(name string, f func(...Op)) operator {
	return operator{name: name, combine: func(_ isa, w, v reg.VecVirtual) reg.VecVirtual {
		f(v, w, w)
		return w
	}}
}

// arithmetic returns the operators for which 16- and 8-bit floats are converted to float32.
func arithmetic(p string) []operator {
	return []operator{plain("sum", of(p, VADDPS, VADDPD)), plain("prod", of(p, VMULPS, VMULPD))}
}

func floatOps(p string) []operator {
	return append(arithmetic(p),
		extreme("max", p, of(p, VMAXPS, VMAXPD), of(p, VANDPS, VANDPD)),
		extreme("min", p, of(p, VMINPS, VMINPD), of(p, VORPS, VORPD)))
}

// extreme returns the maximum or minimum of floats. The instruction f returns w if the two are equal or one is NaN. Two
// cases remain. If w is NaN, the result is v. If the two are equal, the result is the bitwise and (max) or or (min) of
// both. That selects the right zero and does not change other equal values.
func extreme(name, p string, f, both func(...Op)) operator {
	return operator{name: name, combine: func(i isa, w, v reg.VecVirtual) reg.VecVirtual {
		r, zero := i.vec(), i.vec()
		f(w, v, r)
		i.sel(p, unordered, w, w, v, r)
		both(w, v, zero)
		i.sel(p, equal, w, v, zero, r)
		return r
	}}
}

// byteOps returns the operators of int8, and with a "u" those of uint8 that differ.
func byteOps() []operator {
	high := each16(0xff00)
	return []operator{
		plain("sum", VPADDB),
		{"prod", func(i isa) { i.set(high) }, func(i isa, w, v reg.VecVirtual) reg.VecVirtual {
			// There is no product of bytes. Two products of words give the high and the low bytes.
			a, b := i.vec(), i.vec()
			VPSRLW(Imm(8), w, a)
			i.and(get(high), v, b)
			VPMULLW(b, a, a)
			VPMULLW(v, w, w)
			i.andNot(w, get(high), w)
			i.or(a, w, w)
			return w
		}},
		plain("max", VPMAXSB), plain("min", VPMINSB), plain("umax", VPMAXUB), plain("umin", VPMINUB),
	}
}

// wordOps returns the operators of int32 and uint32.
func wordOps() []operator {
	return []operator{
		plain("sum", VPADDD), plain("prod", VPMULLD),
		plain("max", VPMAXSD), plain("min", VPMINSD), plain("umax", VPMAXUD), plain("umin", VPMINUD),
	}
}

// quadOps returns the operators of int64 and uint64. AVX2 has no instruction for most of them.
func quadOps() []operator {
	return []operator{
		plain("sum", VPADDQ),
		{"prod", nil, func(i isa, w, v reg.VecVirtual) reg.VecVirtual {
			if i.wide {
				VPMULLQ(v, w, w)
				return w
			}
			a, b := i.vec(), i.vec()
			VPSRLQ(Imm(32), w, a)
			VPMULUDQ(v, a, a)
			VPSRLQ(Imm(32), v, b)
			VPMULUDQ(w, b, b)
			VPADDQ(b, a, a)
			VPSLLQ(Imm(32), a, a)
			VPMULUDQ(v, w, w)
			VPADDQ(a, w, w)
			return w
		}},
		quadExtreme("max", VPMAXSQ, false, false), quadExtreme("min", VPMINSQ, false, true),
		quadExtreme("umax", VPMAXUQ, true, false), quadExtreme("umin", VPMINUQ, true, true),
	}
}

func quadExtreme(name string, wide func(...Op), unsigned, least bool) operator {
	const sign = 1 << 63
	return operator{name,
		func(i isa) {
			if unsigned && !i.wide {
				i.set(sign)
			}
		},
		func(i isa, w, v reg.VecVirtual) reg.VecVirtual {
			if i.wide {
				wide(v, w, w)
				return w
			}
			a, b, m := w, v, i.vec()
			if unsigned {
				a, b = i.vec(), i.vec()
				VPXOR(get(sign), w, a)
				VPXOR(get(sign), v, b)
			}
			VPCMPGTQ(b, a, m) // w is greater
			if least {
				w, v = v, w
			}
			VBLENDVPD(m, w, v, v)
			return v
		}}
}
