package devicetest

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/device"
)

// Reduce computes a reduction on the CPU, with the kernels of package datatype. reach returns memory of the device as
// bytes that the CPU can use.
func Reduce(r *device.Reduction, reach func(p unsafe.Pointer, size int64) []byte) {
	Start(r, reach)
	Work(r, reach)
	Finish(r, reach)
}

// Start writes the words before a kernel.
func Start(r *device.Reduction, reach func(p unsafe.Pointer, size int64) []byte) {
	write(r.Before, reach)
}

// Finish writes the words after a kernel.
func Finish(r *device.Reduction, reach func(p unsafe.Pointer, size int64) []byte) {
	write(r.After, reach)
}

func write(stores []device.Store, reach func(p unsafe.Pointer, size int64) []byte) {
	word := func(at device.Address, size int64) unsafe.Pointer {
		return unsafe.Pointer(unsafe.SliceData(reach(*(*unsafe.Pointer)(unsafe.Pointer(&at)), size)))
	}
	for i := range stores {
		s := &stores[i]
		if s.Counter != 0 {
			counter := (*uint32)(word(s.Counter, 4))
			if atomic.AddUint32(counter, 1) != s.Of {
				continue
			}
			atomic.StoreUint32(counter, 0)
		}
		if s.Wide {
			atomic.StoreUint64((*uint64)(word(s.At, 8)), s.Value)
		} else {
			atomic.StoreUint32((*uint32)(word(s.At, 4)), uint32(s.Value))
		}
	}
}

// said returns the address in a word, plus offset; nil if the word holds none.
func said(r *device.Reduction, reach func(p unsafe.Pointer, size int64) []byte, word unsafe.Pointer, offset int64,
) unsafe.Pointer {
	if word == nil {
		return nil
	}
	says := atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(reach(word, 8)))))
	if says == 0 || says&device.SaidBits != r.Tag {
		return nil
	}
	says &^= device.SaidBits
	return unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&says)), offset)
}

// Work makes the reduction and the copies of a kernel.
func Work(r *device.Reduction, reach func(p unsafe.Pointer, size int64) []byte) {
	element := int64(r.Type.Size())
	size := r.Count * element
	var load datatype.ScaleFunc
	var factor float64
	if s := r.Scale; s.Set {
		if s.At != nil {
			copy(s.Factor[:], reach(s.At, element))
		}
		load, factor = scaling(r.Type, s.Factor)
	}
	room := rooms.Get().(*[2][]byte)
	defer rooms.Put(room)
	read := func(at, found unsafe.Pointer, offset, size int64, scaled bool, to int) []byte {
		if from := said(r, reach, found, offset); from != nil {
			at = from
		}
		v := append(room[to][:0], reach(at, size)...)
		room[to] = v
		if scaled {
			load(v, v, factor)
		}
		return v
	}
	copyScaled := false
	for i := range r.Copies {
		c := &r.Copies[i]
		copyScaled = copyScaled || c.Scaled
		n := c.Count * element
		store(reach(c.Dst, n), read(c.Src, c.Found, c.Offset, n, c.Scaled && load != nil, 0))
	}
	if r.Count == 0 {
		return
	}
	of := func(i, to int) []byte {
		return read(r.Sources[i], r.Found[i], r.Offset, size, load != nil && !copyScaled, to)
	}
	result := of(0, 0)
	for i := 1; i < r.N; i++ {
		datatype.Reduce(r.Op, r.Type)(result, of(i, 1))
	}
	if r.Divisor > 1 {
		datatype.DivInt(r.Type)(result, r.Divisor)
	}
	store(reach(r.Dst, size), result)
	missing := false
	for _, word := range r.Targets[:r.NumTargets] {
		to := said(r, reach, word, r.TargetOffset)
		if to == nil {
			missing = true
			continue
		}
		copy(reach(to, size), result)
	}
	if missing && r.Spare != nil {
		copy(reach(r.Spare, size), result)
	}
}

// store writes a result. A word is stored atomically, as a device does, since the CPU may read it meanwhile.
func store(dst, result []byte) {
	at := unsafe.Pointer(unsafe.SliceData(dst))
	if len(result) == 4 && uintptr(at)%4 == 0 {
		atomic.StoreUint32((*uint32)(at), binary.NativeEndian.Uint32(result))
		return
	}
	copy(dst, result)
}

// rooms holds buffers for the combined sources and for the next source.
var rooms = sync.Pool{New: func() any { return new([2][]byte) }}

// scaling returns the multiplication by an element.
func scaling(t datatype.Type, raw [8]byte) (datatype.ScaleFunc, float64) {
	bits := binary.NativeEndian.Uint64(raw[:])
	switch t {
	case datatype.Float16:
		return datatype.Scale(t), float64(datatype.F16ToF32(uint16(bits)))
	case datatype.Bfloat16:
		return datatype.Scale(t), float64(datatype.BF16ToF32(uint16(bits)))
	case datatype.Float8E4M3:
		return datatype.Scale(t), float64(datatype.E4M3ToF32(raw[0]))
	case datatype.Float8E5M2:
		return datatype.Scale(t), float64(datatype.E5M2ToF32(raw[0]))
	case datatype.Float32:
		return datatype.Scale(t), float64(math.Float32frombits(uint32(bits)))
	case datatype.Float64:
		return datatype.Scale(t), math.Float64frombits(bits)
	case datatype.Int64, datatype.Uint64:
		return datatype.ScaleUint64(bits), 0
	case datatype.Int32:
		return datatype.Scale(t), float64(int32(bits))
	case datatype.Uint32:
		return datatype.Scale(t), float64(uint32(bits))
	case datatype.Int8:
		return datatype.Scale(t), float64(int8(bits))
	default:
		return datatype.Scale(t), float64(uint8(bits))
	}
}
