// Command asm writes the vector kernels of package datatype. For each instruction set, type and operator, it writes a
// loop that loads from two buffers, combines and stores to a third. The package's portable kernels define the results,
// bit for bit. Run it with "go generate" in the package's folder.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// step is the granularity of every kernel in bytes: lengths are positive multiples of it.
const step = 64

// element describes how elements of a type are loaded and stored. load returns one or two vectors of the type itself or
// of float32.
type element struct {
	name   string
	bytes  func(isa) int // of memory per load
	load   func(isa, Mem) []reg.VecVirtual
	store  func(isa, []reg.VecVirtual, Mem)
	setup  func(isa) // loads the constants of load and store
	stream bool      // store uses streaming stores, which are aligned to a vector and weakly ordered
}

// operator combines the vectors w, of dst, and v, of src.
type operator struct {
	name    string
	setup   func(isa)
	combine func(i isa, w, v reg.VecVirtual) reg.VecVirtual
}

func main() {
	ConstraintExpr("amd64")
	for _, i := range []isa{avx2, avx512} {
		for _, t := range []struct {
			element
			ops []operator
		}{
			{whole("F32"), floatOps("PS")},
			{whole("F64"), floatOps("PD")},
			{whole("I8"), byteOps()},
			{whole("I32"), wordOps()},
			{whole("I64"), quadOps()},
			{f16, arithmetic("PS")},
			{whole("F16"), f16Codes.ops()},
			{bf16, arithmetic("PS")},
			{whole("BF16"), bf16Codes.ops()},
			{e4m3.element(), arithmetic("PS")},
			{whole("E4M3"), e4m3Codes.ops()},
			{e5m2.element(), arithmetic("PS")},
			{whole("E5M2"), e5m2Codes.ops()},
		} {
			for _, o := range t.ops {
				if i == avx2 && t.name == e4m3.name && t.bytes(i) != i.bytes {
					continue // a table is faster
				}
				reduce(i, t.element, o)
			}
		}
		for _, t := range []struct {
			name string
			op   operator
		}{
			{"F32", plain("sum", VADDPS)}, {"F64", plain("sum", VADDPD)},
			{"I8", plain("sum", VPADDB)}, {"I32", plain("sum", VPADDD)}, {"I64", plain("sum", VPADDQ)},
		} {
			reduce(i, streamed(t.name), t.op)
		}
		for _, e := range []element{whole("F32"), whole("F64"), f16, bf16, e4m3.element(), e5m2.element()} {
			scale(i, e)
		}
		stream(i)
	}
	Generate()
}

// reduce writes dst = a op b.
func reduce(i isa, e element, o operator) {
	begin(o.name+e.name+i.name, "func(dst, a, b *byte, n int)")
	for _, setup := range []func(isa){e.setup, o.setup} {
		if setup != nil {
			setup(i)
		}
	}
	loop(e.bytes(i), []string{"dst", "a", "b"}, func(m []Mem) {
		w, v := e.load(i, m[1]), e.load(i, m[2])
		for k := range w {
			w[k] = o.combine(i, w[k], v[k])
		}
		e.store(i, w, m[0])
	})
	if e.stream {
		SFENCE()
	}
	VZEROUPPER()
	RET()
}

// scale writes dst = src x factor.
func scale(i isa, e element) {
	factor, p := "float32", "PS"
	if e.name == "F64" {
		factor, p = "float64", "PD"
	}
	begin("scale"+e.name+i.name, fmt.Sprintf("func(dst, src *byte, n int, factor %s)", factor))
	if e.setup != nil {
		e.setup(i)
	}
	x, f := XMM(), i.vec()
	Load(Param("factor"), x)
	if p == "PD" {
		VBROADCASTSD(x, f)
	} else {
		VBROADCASTSS(x, f)
	}
	loop(e.bytes(i), []string{"dst", "src"}, func(m []Mem) {
		v := e.load(i, m[1])
		for k := range v {
			of(p, VMULPS, VMULPD)(f, v[k], v[k])
		}
		e.store(i, v, m[0])
	})
	VZEROUPPER()
	RET()
}

// stream writes dst = src with streaming stores; dst is aligned to a vector. Such stores are weakly ordered, so a fence
// follows. Copying several pages at a time uses more memory banks (10 to 15 % faster on both cores of a Xeon for 64 MiB
// and more). The rest is copied line by line.
func stream(i isa) {
	const pages, page = 4, 4096
	begin("stream"+i.name, "func(dst, src *byte, n int)")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	lines := GP64()
	move := func(apart, times int) {
		for at := 0; at < step; at += i.bytes {
			v := make([]reg.VecVirtual, times)
			for k := range v { // all loads first: a store at the same offset in its page could delay them (4K aliasing)
				v[k] = i.vec()
				if from := (Mem{Base: src, Disp: k*apart + at}); i.wide {
					VMOVDQU64(from, v[k])
				} else {
					VMOVDQU(from, v[k])
				}
			}
			for k := range v {
				VMOVNTDQ(v[k], Mem{Base: dst, Disp: k*apart + at})
			}
		}
		ADDQ(U8(step), src)
		ADDQ(U8(step), dst)
	}
	Label("block")
	SUBQ(U32(pages*page), n)
	JL(LabelRef("rest"))
	MOVQ(U32(page/step), lines)
	Label("pages")
	move(page, pages)
	DECQ(lines)
	JNZ(LabelRef("pages"))
	ADDQ(U32((pages-1)*page), src)
	ADDQ(U32((pages-1)*page), dst)
	JMP(LabelRef("block"))
	Label("rest")
	ADDQ(U32(pages*page), n)
	JZ(LabelRef("done"))
	Label("line")
	move(0, 1)
	SUBQ(U8(step), n)
	JNZ(LabelRef("line"))
	Label("done")
	SFENCE()
	VZEROUPPER()
	RET()
}

func begin(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	clear(constants)
}

// loop runs body over n bytes of the named buffers. An iteration runs body for 64 bytes, at most four times. The loop
// counts an offset from the ends of the buffers up to 0.
func loop(bytes int, names []string, body func([]Mem)) {
	bases := make([]reg.Register, len(names))
	for k, name := range names {
		bases[k] = Load(Param(name), GP64())
	}
	n := Load(Param("n"), GP64())
	for _, b := range bases {
		ADDQ(n, b)
	}
	NEGQ(n)
	Label("loop")
	times := min(step/bytes, 4)
	for k := range times {
		at := make([]Mem, len(bases))
		for j, b := range bases {
			at[j] = Mem{Base: b, Index: n, Scale: 1, Disp: k * bytes}
		}
		body(at)
	}
	ADDQ(Imm(uint64(times*bytes)), n)
	JNZ(LabelRef("loop"))
}
