package ebpf

import (
	"encoding/binary"
	"errors"

	"lightpath/collectives/wire"
)

// A datagram carries one frame, little endian:
//
//	0 sequence u32 of the frame in its flow      4 tag u32 of the operation, 24 bits
//	8 wire.Header                               72 payload
//
// The eBPF programs read the tag and the header's magic number.
const (
	atSequence  = 0
	atTag       = 4
	prefixSize  = 8
	headSize    = prefixSize + wire.HeaderSize
	tagBits     = 24
	transitBits = 64 - tagBits // bits of Counters.TransitOp that count bytes
)

// ipHeaders4 and ipHeaders6 are the sizes of the IP and UDP headers in bytes.
const (
	ipHeaders4 = 28
	ipHeaders6 = 48
	minMTU     = 1280
	maxMTU     = 65535
)

// FrameOverhead is the size of all headers of a frame over IPv4 in bytes, including the Ethernet header.
const FrameOverhead = 14 + ipHeaders4 + headSize

var (
	errNoFrame = errors.New("datagram is shorter than a frame's header")
	errEmpty   = errors.New("frame without payload")
)

// tag identifies an operation for the eBPF programs. Consecutive operations of a communicator have different tags.
func tag(comm, op uint64) uint32 {
	h := comm * 0x9e3779b97f4a7c15
	return uint32(h>>40+op*0x9e3779) & (1<<tagBits - 1)
}

// encode writes the frame up to its payload.
func encode(h *wire.Header, sequence uint32, b *[headSize]byte) {
	binary.LittleEndian.PutUint32(b[atSequence:], sequence)
	binary.LittleEndian.PutUint32(b[atTag:], tag(h.Comm, h.Op))
	wire.Encode(h, b[prefixSize:])
}

// decode decodes a frame and checks its length.
func decode(b []byte, h *wire.Header) (sequence uint32, payload []byte, err error) {
	if len(b) < headSize {
		return 0, nil, errNoFrame
	}
	if payload, err = wire.DecodeFrame(b[prefixSize:], h); err == nil && len(payload) == 0 {
		err = errEmpty
	}
	return binary.LittleEndian.Uint32(b[atSequence:]), payload, err
}
