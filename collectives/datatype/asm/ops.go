package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// of picks the instruction for single or double precision.
func of[T any](p string, ps, pd T) T {
	if p == "PD" {
		return pd
	}
	return ps
}

// plain is an operator that is one instruction in both sets. The first operand is w: where
// both are NaN, its payload is kept.
func plain(name string, f func(...Op)) operator {
	return operator{name: name, combine: func(_ isa, w, v reg.VecVirtual) reg.VecVirtual {
		f(v, w, w)
		return w
	}}
}

// arithmetic is what 16- and 8-bit floats are widened for.
func arithmetic(p string) []operator {
	return []operator{plain("sum", of(p, VADDPS, VADDPD)), plain("prod", of(p, VMULPS, VMULPD))}
}

func floatOps(p string) []operator {
	return append(arithmetic(p),
		extreme("max", p, of(p, VMAXPS, VMAXPD), of(p, VANDPS, VANDPD)),
		extreme("min", p, of(p, VMINPS, VMINPD), of(p, VORPS, VORPD)))
}

// extreme is the maximum or minimum of floats. The instruction yields w where the two are
// equal or one is NaN, which leaves two cases: w is NaN, and zeros of either sign, of which
// both bits give the one to take: for other equals they change nothing.
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

// byteOps are those of int8 and, with a U, of uint8 where they differ.
func byteOps() []operator {
	high := each16(0xff00)
	return []operator{
		plain("sum", VPADDB),
		{"prod", func(i isa) { i.set(high) }, func(i isa, w, v reg.VecVirtual) reg.VecVirtual {
			// There is no product of bytes: those of words, once for the high bytes.
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

// wordOps are those of int32 and uint32.
func wordOps() []operator {
	return []operator{
		plain("sum", VPADDD), plain("prod", VPMULLD),
		plain("max", VPMAXSD), plain("min", VPMINSD), plain("umax", VPMAXUD), plain("umin", VPMINUD),
	}
}

// quadOps are those of int64 and uint64, most of which AVX2 lacks.
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
