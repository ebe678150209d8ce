package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// Magic and Version begin every frame.
const (
	Magic   = 0x4654504c // "LPTF"
	Version = 1
)

// Errors that [Decode] returns.
var (
	ErrShort    = errors.New("wire: frame shorter than its header")
	ErrMagic    = errors.New("wire: not a frame header")
	ErrVersion  = errors.New("wire: unknown frame version")
	ErrChecksum = errors.New("wire: header checksum does not match")
	ErrReserved = errors.New("wire: reserved bytes are not zero")
)

// HeaderSize is the encoded size of a [Header] in bytes.
const HeaderSize = 64

// Header identifies a frame completely. So a receiver detects a frame that does not belong to its flow and returns
// an error instead of data.
type Header struct {
	Comm      uint64 // communicator
	Op        uint64 // sequence number of the operation in the communicator
	Offset    uint64 // position of the payload in the flow's bytes of the step
	Step      uint32
	Epoch     uint32 // of the circuit that carries the frame
	Signature uint32 // program.Program.Signature
	Length    uint32 // payload bytes
	Src, Dst  uint16 // source and destination rank of the flow
	Plane     uint16
	Flags     uint16
}

// Prompt is a flag of a frame: the receiver's host acknowledges the frame as soon as the receiver has read it.
const Prompt = 1 << 0

// The encoding, little endian:
//
//	 0 magic u32     4 version u16   6 flags u16
//	 8 comm u64     16 op u64       24 offset u64
//	32 step u32     36 epoch u32    40 signature u32   44 length u32
//	48 src u16      50 dst u16      52 plane u16       54 reserved u16, zero
//	56 checksum u64 over bytes 0..55
const (
	atMagic, atVersion, atFlags, atComm, atOp, atOffset = 0, 4, 6, 8, 16, 24
	atStep, atEpoch, atSignature, atLength              = 32, 36, 40, 44
	atSrc, atDst, atPlane, atReserved, atChecksum       = 48, 50, 52, 54, 56
)

// Encode writes h to b[:HeaderSize].
// Hot path: no allocation, no locks, no logging.
func Encode(h *Header, b []byte) {
	_ = b[HeaderSize-1]
	le := binary.LittleEndian
	le.PutUint32(b[atMagic:], Magic)
	le.PutUint16(b[atVersion:], Version)
	le.PutUint16(b[atFlags:], h.Flags)
	le.PutUint64(b[atComm:], h.Comm)
	le.PutUint64(b[atOp:], h.Op)
	le.PutUint64(b[atOffset:], h.Offset)
	le.PutUint32(b[atStep:], h.Step)
	le.PutUint32(b[atEpoch:], h.Epoch)
	le.PutUint32(b[atSignature:], h.Signature)
	le.PutUint32(b[atLength:], h.Length)
	le.PutUint16(b[atSrc:], h.Src)
	le.PutUint16(b[atDst:], h.Dst)
	le.PutUint16(b[atPlane:], h.Plane)
	le.PutUint16(b[atReserved:], 0)
	le.PutUint64(b[atChecksum:], checksum(b))
}

// Decode checks the header in b[:HeaderSize] and reads it into h. On an error it leaves h unchanged.
// Hot path: no allocation, no locks, no logging.
func Decode(b []byte, h *Header) error {
	if len(b) < HeaderSize {
		return ErrShort
	}
	b = b[:HeaderSize]
	le := binary.LittleEndian
	if le.Uint32(b[atMagic:]) != Magic {
		return ErrMagic
	}
	if v := le.Uint16(b[atVersion:]); v != Version {
		return fmt.Errorf("%w: %d, want %d", ErrVersion, v, Version)
	}
	if le.Uint64(b[atChecksum:]) != checksum(b) {
		return ErrChecksum
	}
	if le.Uint16(b[atReserved:]) != 0 {
		return ErrReserved
	}
	h.Flags = le.Uint16(b[atFlags:])
	h.Comm = le.Uint64(b[atComm:])
	h.Op = le.Uint64(b[atOp:])
	h.Offset = le.Uint64(b[atOffset:])
	h.Step = le.Uint32(b[atStep:])
	h.Epoch = le.Uint32(b[atEpoch:])
	h.Signature = le.Uint32(b[atSignature:])
	h.Length = le.Uint32(b[atLength:])
	h.Src = le.Uint16(b[atSrc:])
	h.Dst = le.Uint16(b[atDst:])
	h.Plane = le.Uint16(b[atPlane:])
	return nil
}

// DecodeFrame decodes the header of a whole frame into h, and returns the payload.
// Hot path: no allocation, no locks, no logging.
func DecodeFrame(b []byte, h *Header) (payload []byte, err error) {
	if err := Decode(b, h); err != nil {
		return nil, err
	}
	payload = b[HeaderSize:]
	if int(h.Length) != len(payload) {
		return nil, fmt.Errorf("frame of %d bytes, its header says %d", len(payload), h.Length)
	}
	return payload, nil
}

// CheckFlow returns an error if h is not a frame of the flow from src to dst on plane.
func (h *Header) CheckFlow(src, dst, plane int) error {
	if int(h.Src) != src || int(h.Dst) != dst || int(h.Plane) != plane {
		return fmt.Errorf("frame from rank %d to rank %d on plane %d, want %d to %d on %d",
			h.Src, h.Dst, h.Plane, src, dst, plane)
	}
	return nil
}

// checksum adds a hash of each of the first seven words. Each hash is a bijection of its word (xor, odd multiplier,
// rotation), so the sum detects any damage within one word. Each word has its own constants, so the sum also
// detects exchanged words. The multiplications are independent of each other, so checksum takes a few nanoseconds.
func checksum(b []byte) uint64 {
	_ = b[atChecksum-1]
	le := binary.LittleEndian
	sum := (le.Uint64(b[0:]) ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	sum += bits.RotateLeft64((le.Uint64(b[8:])^0xc2b2ae3d27d4eb4f)*0x94d049bb133111eb, 9)
	sum += bits.RotateLeft64((le.Uint64(b[16:])^0x165667b19e3779f9)*0xff51afd7ed558ccd, 18)
	sum += bits.RotateLeft64((le.Uint64(b[24:])^0x27d4eb2f165667c5)*0xc4ceb9fe1a85ec53, 27)
	sum += bits.RotateLeft64((le.Uint64(b[32:])^0x85ebca77c2b2ae63)*0xd6e8feb86659fd93, 36)
	sum += bits.RotateLeft64((le.Uint64(b[40:])^0xa0761d6478bd642f)*0xe7037ed1a0b428db, 45)
	sum += bits.RotateLeft64((le.Uint64(b[48:])^0x8ebc6af09c88c6e3)*0x589965cc75374cc3, 54)
	return sum
}
