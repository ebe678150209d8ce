// Package wire defines the frame header that precedes every payload on every plane, and
// its checks. It is a leaf: no I/O, no allocation.
package wire

// HeaderSize is the encoded size of a [Header].
const HeaderSize = 64

// Header identifies a frame completely: a frame that does not belong where it arrives is
// an error, never data. All fields little endian on the wire.
type Header struct {
	Comm      uint64 // communicator
	Op        uint64 // operation sequence of the communicator
	Offset    uint64 // of the payload in its flow's bytes of the step
	Step      uint32
	Epoch     uint32 // of the circuit it travels
	Signature uint32 // program.Program.Signature
	Length    uint32 // payload bytes
	Src, Dst  uint16 // flow end points, ranks of the communicator
	Plane     uint16
	Flags     uint16
}
