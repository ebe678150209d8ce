package calls

import (
	"encoding/binary"
	"math"

	"lightpath/collectives/datatype"
	"lightpath/shim/memory"
)

// Kernels are the functions that compute a call of some shape, looked up once.
type Kernels struct {
	Reduce        datatype.ReduceFunc
	Combine       datatype.CombineFunc
	CombineStream datatype.CombineFunc // Combine with stores past the caches; nil: there is none
	Scale         datatype.ScaleFunc   // scales each contribution as it is loaded; nil: none is scaled
	factor        float64              // of Scale; 0: each call has its own
	Div           datatype.DivFunc     // divides the result by the ranks; nil: it is not divided
}

// KernelsOf returns the kernels of a shape. Averages of floats scale every contribution by 1/n as it is loaded;
// averages of integers divide the sum (NCCL's definition of ncclAvg). Operators of the user scale by the scalar of each
// call.
func KernelsOf(s *Shape, ranks int) Kernels {
	if !Kinds[s.Kind].Reduces {
		return Kernels{}
	}
	op := s.Op
	var k Kernels
	switch {
	case op == OpPreMulSum:
		op, k.Scale = datatype.Sum, datatype.Scale(s.Type)
	case op != datatype.Avg:
	default:
		op = datatype.Sum
		if ranks > 1 && s.Type.Float() {
			k.Scale, k.factor = datatype.Scale(s.Type), 1/float64(ranks)
		} else if ranks > 1 {
			k.Div = datatype.DivInt(s.Type)
		}
	}
	k.Reduce = datatype.Reduce(op, s.Type)
	k.Combine, k.CombineStream = datatype.Combine(op, s.Type), datatype.CombineStream(op, s.Type)
	return k
}

// Scaling returns the function and factor that scale the call's contribution as it is loaded, nil if it is not scaled.
// It allocates only for 64-bit scalars that float64 cannot hold.
func (k *Kernels) Scaling(c *Call) (datatype.ScaleFunc, float64) {
	if c.Op != OpPreMulSum || k.Scale == nil {
		return k.Scale, k.factor
	}
	var raw [8]byte
	copy(raw[:], memory.Bytes(c.Scalar, int64(c.Type.Size()))) // of any alignment
	factor, exact := element(c.Type, raw)
	if !exact {
		return datatype.ScaleUint64(binary.NativeEndian.Uint64(raw[:])), 0
	}
	return k.Scale, factor
}

// element reads an element as a float64, and reports whether that holds it.
func element(t datatype.Type, raw [8]byte) (v float64, exact bool) {
	const whole = 1 << 53
	bits := binary.NativeEndian.Uint64(raw[:])
	switch t {
	case datatype.Int8:
		return float64(int8(raw[0])), true
	case datatype.Uint8:
		return float64(raw[0]), true
	case datatype.Int32:
		return float64(int32(binary.NativeEndian.Uint32(raw[:]))), true
	case datatype.Uint32:
		return float64(binary.NativeEndian.Uint32(raw[:])), true
	case datatype.Int64:
		return float64(int64(bits)), -whole <= int64(bits) && int64(bits) <= whole
	case datatype.Uint64:
		return float64(bits), bits <= whole
	case datatype.Float16:
		return float64(datatype.F16ToF32(binary.NativeEndian.Uint16(raw[:]))), true
	case datatype.Bfloat16:
		return float64(datatype.BF16ToF32(binary.NativeEndian.Uint16(raw[:]))), true
	case datatype.Float32:
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(raw[:]))), true
	case datatype.Float8E4M3:
		return float64(datatype.E4M3ToF32(raw[0])), true
	case datatype.Float8E5M2:
		return float64(datatype.E5M2ToF32(raw[0])), true
	default:
		return math.Float64frombits(bits), true
	}
}
