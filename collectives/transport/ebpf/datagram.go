package ebpf

import (
	"encoding/binary"
	"errors"

	"lightpath/collectives/wire"
)

// The frame format: a datagram is
//
//	0 sequence u32 of the frame in its flow      4 tag u32 of the operation, 24 bits
//	8 wire.Header                               72 payload
//
// little endian. The kernel's programs read the tag, and the header's magic number behind it.
const (
	atSequence  = 0
	atTag       = 4
	prefixSize  = 8
	headSize    = prefixSize + wire.HeaderSize
	tagBits     = 24
	transitBits = 64 - tagBits // of Counters.TransitOp that count bytes
)

// ipHeaders are the bytes of a packet in front of its datagram: IPv6, or IPv4 with room to spare.
const (
	ipHeaders4 = 28
	ipHeaders6 = 48
	minMTU     = 1280
	maxMTU     = 65535
)

// FrameOverhead is what a frame over IPv4 has besides its payload, in bytes, with the Ethernet header.
const FrameOverhead = 14 + ipHeaders4 + headSize

var errNoFrame = errors.New("datagram is shorter than a frame's header")

// tag is what the kernel's programs tell operations apart by: those that follow each other in a
// communicator differ.
func tag(comm, op uint64) uint32 {
	h := comm * 0x9e3779b97f4a7c15
	return uint32(h>>40+op*0x9e3779) & (1<<tagBits - 1)
}

// encode writes everything of a frame but its payload.
func encode(h *wire.Header, sequence uint32, b *[headSize]byte) {
	binary.LittleEndian.PutUint32(b[atSequence:], sequence)
	binary.LittleEndian.PutUint32(b[atTag:], tag(h.Comm, h.Op))
	wire.Encode(h, b[prefixSize:])
}

// decode reads a frame and checks that its length is what it says.
func decode(b []byte, h *wire.Header) (sequence uint32, payload []byte, err error) {
	if len(b) < headSize {
		return 0, nil, errNoFrame
	}
	if err := wire.Decode(b[prefixSize:], h); err != nil {
		return 0, nil, err
	}
	payload = b[headSize:]
	if len(payload) == 0 || int(h.Length) != len(payload) {
		return 0, nil, errors.New("frame's length is not what it says")
	}
	return binary.LittleEndian.Uint32(b[atSequence:]), payload, nil
}
