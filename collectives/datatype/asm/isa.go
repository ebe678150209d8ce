package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set: AVX2 with F16C, or AVX-512 F, BW, DQ and VL.
type isa struct {
	name  string
	bytes int // of a vector
	wide  bool
}

var (
	avx2   = isa{"AVX2", 32, false}
	avx512 = isa{"AVX512", 64, true}
)

// vec returns a new vector register.
func (i isa) vec() reg.VecVirtual {
	if i.wide {
		return ZMM()
	}
	return YMM()
}

// half returns a new register of half a vector.
func (i isa) half() reg.VecVirtual {
	if i.wide {
		return YMM()
	}
	return XMM()
}

// Bitwise operations. Their names in AVX-512 include the size of a masked element.

func (i isa) and(a, b, d Op) {
	if i.wide {
		VPANDD(a, b, d)
	} else {
		VPAND(a, b, d)
	}
}

// andNot sets d to a with the bits of b cleared.
func (i isa) andNot(a, b, d Op) {
	if i.wide {
		VPANDND(a, b, d)
	} else {
		VPANDN(a, b, d)
	}
}

func (i isa) or(a, b, d Op) {
	if i.wide {
		VPORD(a, b, d)
	} else {
		VPOR(a, b, d)
	}
}

func (i isa) xor(a, b, d Op) {
	if i.wide {
		VPXORD(a, b, d)
	} else {
		VPXOR(a, b, d)
	}
}

// greater sets all bits of each element of d, a byte or a word, for which a > b, and clears the others.
func (i isa) greater(n narrow, a, b, d Op) {
	i.compare(n, n.of(VPCMPGTB, VPCMPGTW), b, a, d)
}

// equals is like greater for a == b.
func (i isa) equals(n narrow, a, b, d Op) {
	i.compare(n, n.of(VPCMPEQB, VPCMPEQW), b, a, d)
}

func (i isa) compare(n narrow, f func(...Op), b, a, d Op) {
	if !i.wide {
		f(b, a, d)
		return
	}
	k := K()
	f(b, a, k)
	if n.bits == 8 {
		VPMOVM2B(k, d)
	} else {
		VPMOVM2W(k, d)
	}
}

// blend replaces the bytes of d by those of s for which the bits of m are set.
func (i isa) blend(m, s, d Op) {
	if i.wide {
		VPTERNLOGD(U8(0xb8), s, m, d)
	} else {
		VPBLENDVB(m, s, d, d)
	}
}

// Predicates of VCMPPS: quiet comparisons.
const (
	equal     = U8(0)
	unordered = U8(3)
)

// sel replaces the elements of d by those of s for which the predicate holds for the floats a and b.
func (i isa) sel(p string, predicate U8, a, b, s, d Op) {
	if i.wide {
		k := K()
		if p == "PD" {
			VCMPPD(predicate, a, b, k)
			VMOVAPD(s, k, d)
		} else {
			VCMPPS(predicate, a, b, k)
			VMOVAPS(s, k, d)
		}
		return
	}
	m := i.vec()
	if p == "PD" {
		VCMPPD(predicate, a, b, m)
		VBLENDVPD(m, s, d, d)
	} else {
		VCMPPS(predicate, a, b, m)
		VBLENDVPS(m, s, d, d)
	}
}

// constants are the registers with constants of the current function.
var constants = map[uint64]reg.VecVirtual{}

// data are the constants in memory.
var data = map[uint64]Mem{}

// set fills a register with a 64-bit constant for the whole function.
func (i isa) set(v uint64) {
	m, ok := data[v]
	if !ok {
		m = ConstData(fmt.Sprintf("c%016x", v), U64(v))
		data[v] = m
	}
	r := i.vec()
	VPBROADCASTQ(m, r)
	constants[v] = r
}

// get returns the register that set filled.
func get(v uint64) reg.VecVirtual {
	r, ok := constants[v]
	if !ok {
		panic(fmt.Sprintf("constant %#x is not set", v))
	}
	return r
}

// each16 and each32 repeat an element over 64 bits.
func each16(v uint16) uint64 { return uint64(v) * 0x0001000100010001 }
func each32(v uint32) uint64 { return uint64(v) * 0x0000000100000001 }
