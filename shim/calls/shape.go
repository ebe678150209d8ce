package calls

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/shim/control"
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
