// Package rdma is the transport over RDMA. Each pair of ranks has a queue pair per plane. The sender writes frames
// directly into a ring in the peer's memory, each with an immediate that carries the number of the frame.
//
// The package defines the verbs that it uses ([Verbs]); cgo/verbs and verbstest implement them. It contains no C. It
// imports transport, wire, internal/counts and internal/poller. Only out-of-band counts start a goroutine, one per
// endpoint.
//
// # Frames
//
// A slot of a ring holds a header (package wire) and a payload. The sender writes it from a staging ring of the same
// shape: frame i uses slot i mod slots in both rings. The payload arrives before the receiver can check the header. So
// the receiver checks the header, with its epoch, before it uses any byte of the frame. A frame whose number is not
// the next one is an error.
//
// # Flow control
//
// A sender never has more unreleased frames at its peer than there are slots. So no write overwrites a used slot, and
// no write waits for a receive. The peer returns its count of released frames with empty writes on the plane. If the
// plane has no path back, or if that path may change, counts are out-of-band: they use the control network (counts.go).
//
// # Without acknowledgements
//
// On circuits that lead one way, a packet cannot be acknowledged. Queue pairs there are UC, and counts replace
// acknowledgements. The numbers in immediates reveal a loss before a frame that arrives. The sender's count of frames
// that have left reveals a loss at the end. Both are [transport.ErrDark] at both ranks. The plane is drained when the
// receiver has confirmed all frames.
//
// # Completions
//
// Every n-th request is signalled, where n is a quarter of the slots. [transport.Plane.Drained] returns true when all
// requests are complete; if the last was not signalled, it posts an empty signalled write. A completion with an error
// ends the flows to and from that peer: see [QPError].
package rdma
