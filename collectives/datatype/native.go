package datatype

import "unsafe"

// Kernels of the element types that are also Go types.

type integers interface {
	int8 | uint8 | int32 | uint32 | int64 | uint64
}

type floats interface{ float32 | float64 }

type numbers interface{ integers | floats }

// block is the number of elements copied to the stack at a time, if memory is unaligned or its type is not a Go type.
const block = 256

// elements returns b as a slice of T, and false if b is not aligned for T.
func elements[T numbers](b []byte) ([]T, bool) {
	var t T
	size := unsafe.Sizeof(t)
	n := uintptr(len(b)) / size
	p := unsafe.Pointer(unsafe.SliceData(b))
	if n == 0 {
		return nil, true
	}
	if uintptr(p)%size != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), n), true
}

// bytesOf returns the memory of s.
func bytesOf[T numbers](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(t))
}

// whole returns the length in bytes of the whole elements that both buffers have.
func whole(dst, src []byte, size int) int {
	n := min(len(dst), len(src))
	return n - n%size
}

// combine applies an operator to slices of equal length. Go's max and min order zeros as [ReduceFunc] does, but return
// NaN if one operand is NaN; w != w tests for NaN.
func combine[T numbers](op Op, d, s []T) {
	s = s[:len(d)]
	switch op {
	case Sum:
		sum(d, s)
	case Prod:
		prod(d, s)
	case Max:
		for i, v := range s {
			if w := d[i]; w != w {
				d[i] = v
			} else if v == v {
				d[i] = max(w, v)
			}
		}
	case Min:
		for i, v := range s {
			if w := d[i]; w != w {
				d[i] = v
			} else if v == v {
				d[i] = min(w, v)
			}
		}
	}
}

// sum and prod are unrolled over arrays, whose constant indexes need no bounds checks.

func sum[T numbers](d, s []T) {
	for len(d) >= 8 && len(s) >= 8 {
		a, b := (*[8]T)(d), (*[8]T)(s)
		a[0] += b[0]
		a[1] += b[1]
		a[2] += b[2]
		a[3] += b[3]
		a[4] += b[4]
		a[5] += b[5]
		a[6] += b[6]
		a[7] += b[7]
		d, s = d[8:], s[8:]
	}
	s = s[:len(d)]
	for i, v := range s {
		d[i] += v
	}
}

func prod[T numbers](d, s []T) {
	for len(d) >= 8 && len(s) >= 8 {
		a, b := (*[8]T)(d), (*[8]T)(s)
		a[0] *= b[0]
		a[1] *= b[1]
		a[2] *= b[2]
		a[3] *= b[3]
		a[4] *= b[4]
		a[5] *= b[5]
		a[6] *= b[6]
		a[7] *= b[7]
		d, s = d[8:], s[8:]
	}
	s = s[:len(d)]
	for i, v := range s {
		d[i] *= v
	}
}

// reduceBytes applies combine to memory of any alignment.
func reduceBytes[T numbers](op Op, dst, src []byte) {
	var t T
	n := whole(dst, src, int(unsafe.Sizeof(t)))
	dst, src = dst[:n], src[:n]
	d, ok := elements[T](dst)
	s, ok2 := elements[T](src)
	if ok && ok2 {
		combine(op, d, s)
		return
	}
	var a, b [block]T
	for len(dst) > 0 {
		n := copy(bytesOf(a[:]), dst)
		copy(bytesOf(b[:]), src)
		k := n / int(unsafe.Sizeof(t))
		combine(op, a[:k], b[:k])
		copy(dst, bytesOf(a[:k]))
		dst, src = dst[n:], src[n:]
	}
}

// scaleBytes multiplies memory of any alignment.
func scaleBytes[T numbers](dst, src []byte, f T) {
	n := whole(dst, src, int(unsafe.Sizeof(f)))
	dst, src = dst[:n], src[:n]
	d, ok := elements[T](dst)
	s, ok2 := elements[T](src)
	if ok && ok2 {
		scale(d, s, f)
		return
	}
	var a [block]T
	for len(dst) > 0 {
		n := copy(bytesOf(a[:]), src)
		k := n / int(unsafe.Sizeof(f))
		scale(a[:k], a[:k], f)
		copy(dst, bytesOf(a[:k]))
		dst, src = dst[n:], src[n:]
	}
}

func scale[T numbers](d, s []T, f T) {
	s = s[:len(d)]
	for i, v := range s {
		d[i] = v * f
	}
}

// divBytes divides memory of any alignment.
func divBytes[T integers](dst []byte, n int64) {
	var t T
	dst = dst[:whole(dst, dst, int(unsafe.Sizeof(t)))]
	if d, ok := elements[T](dst); ok {
		divide(d, n)
		return
	}
	var a [block]T
	for len(dst) > 0 {
		k := copy(bytesOf(a[:]), dst)
		divide(a[:k/int(unsafe.Sizeof(t))], n)
		copy(dst, bytesOf(a[:])[:k])
		dst = dst[k:]
	}
}

func divide[T integers](d []T, n int64) {
	if ^T(0) > 0 { // unsigned
		for i, v := range d {
			d[i] = T(uint64(v) / uint64(n))
		}
		return
	}
	for i, v := range d {
		d[i] = T(int64(v) / n)
	}
}
