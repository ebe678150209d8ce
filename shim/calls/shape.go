package calls

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/shim/control"
	"lightpath/shim/memory"
	"lightpath/shim/planeset"
)

// Shape holds the values that ranks agree on in a collective call, and InPlace, which each rank has for itself.
type Shape struct {
	Kind     Kind
	Type     datatype.Type
	Op       datatype.Op
	InPlace  bool
	Root     int32
	Count    uint64
	Whole    uint64 // Count of the call that this is a piece of; 0: none
	Request  Request
	Scripted bool // the call is on streams as a script, under the plan that all ranks have for its shape
}

// ShapeOf returns the shape of a collective call.
func ShapeOf(c *Call) Shape {
	k := &Kinds[c.Kind]
	s := Shape{
		Kind: c.Kind, Type: c.Type, InPlace: c.inPlace, Count: c.Count, Whole: c.Whole,
		Request: Request{c.Options.Plan, planeset.Set(c.Options.Planes)},
	}
	if k.Reduces {
		s.Op = c.Op
	}
	if k.Rooted {
		s.Root = c.Peer
	}
	return s
}

// Signature identifies what ranks must agree on, in frames and in messages between them: all of a shape except InPlace.
func (s *Shape) Signature() uint32 {
	if s.Scripted {
		plain := *s
		plain.Scripted = false
		return program.Signature(uint64(plain.Signature()), 1)
	}
	return program.Signature(uint64(s.Kind), uint64(s.Type), uint64(s.Op), uint64(s.Root), s.Count,
		s.Request.signature()^bits.RotateLeft64(s.Whole, 32))
}

// signature returns a request's part of the signature of a call.
func (w *Request) signature() uint64 {
	h := w.Plan.Bits ^ uint64(w.Plan.Digits)<<1
	return bits.RotateLeft64(h, 17)*0x9e3779b97f4a7c15 ^ uint64(w.Planes)
}

// String describes the call that a shape came from.
func (s *Shape) String() string {
	c := s.Call()
	if s.Scripted {
		return c.String() + ", interposed"
	}
	return c.String()
}

// Call returns that call without its buffers.
func (s *Shape) Call() Call {
	return Call{
		Kind: s.Kind, Type: s.Type, Op: s.Op, Peer: s.Root, Count: s.Count, Whole: s.Whole,
		Options: Options{Plan: s.Request.Plan, Planes: uint64(s.Request.Planes)},
	}
}

// Pack packs a shape, except its count, into one word.
func (s *Shape) Pack() uint64 {
	return uint64(s.Kind) | uint64(s.Type)<<8 | uint64(s.Op)<<16 | uint64(uint32(s.Root))<<32
}

// Unpack returns the shape of a word of [Shape.Pack] and a count.
func Unpack(packed, count uint64) Shape {
	return Shape{
		Kind: Kind(packed & 0xff), Type: datatype.Type(packed >> 8 & 0xff), Op: datatype.Op(packed >> 16 & 0xff),
		Root: int32(packed >> 32), Count: count,
	}
}

// shapeBytes is the size of an encoded shape.
const shapeBytes = 41

// AppendShape encodes the values that ranks agree on, for the leader. Little endian: kind, type, operator and flags, a
// byte each, root u32, count u64, whole u64, plan u64, its digits u8, planes u64.
func AppendShape(b []byte, s *Shape) []byte {
	le := binary.LittleEndian
	flags := byte(0)
	if s.Scripted {
		flags = 1
	}
	b = append(b, byte(s.Kind), byte(s.Type), byte(s.Op), flags)
	b = le.AppendUint32(b, uint32(s.Root))
	b = le.AppendUint64(b, s.Count)
	b = le.AppendUint64(b, s.Whole)
	b = le.AppendUint64(b, s.Request.Plan.Bits)
	b = append(b, s.Request.Plan.Digits)
	return le.AppendUint64(b, uint64(s.Request.Planes))
}

// DecodeShape reads a shape of a communicator of so many ranks.
func DecodeShape(b []byte, ranks int) (s Shape, err error) {
	le := binary.LittleEndian
	if len(b) != shapeBytes || b[3] > 1 {
		return s, fmt.Errorf("%w: shape of %d bytes", control.ErrMessage, len(b))
	}
	s = Shape{
		Kind: Kind(b[0]), Type: datatype.Type(b[1]), Op: datatype.Op(b[2]), Scripted: b[3] == 1,
		Root: int32(le.Uint32(b[4:])), Count: le.Uint64(b[8:]), Whole: le.Uint64(b[16:]),
		Request: Request{DigestPrefix{le.Uint64(b[24:]), b[32]}, planeset.Set(le.Uint64(b[33:]))},
	}
	if s.Kind >= NumKinds || s.Kind.P2P() || !s.Type.Valid() || s.Op > OpPreMulSum || s.Root < 0 || int(s.Root) >= ranks ||
		s.Count == 0 || s.Count > math.MaxInt64/uint64(8*ranks) || s.Request.Plan.Digits > 16 {
		return s, fmt.Errorf("%w: shape of %v", control.ErrMessage, s.Kind)
	}
	return s, nil
}

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
