// Package ebpf is the transport over network interfaces whose circuits switch: planes in the kernel (package
// ocsctl/kernel), or NICs behind a real OCS. A frame is one UDP datagram. The goroutine that drives the rank sends and
// receives batches of frames with non-blocking system calls.
//
// The package imports transport, wire, and of internal counts, frames, nic and poller. It does not know circuits or
// eBPF programs: the caller passes sockets, addresses and counters. It must not send anything except frames on a plane,
// because a circuit leads one way. Credits use the control network.
//
// # Credits
//
// A receiver's socket has room for a window of frames from each rank. It sends each rank the cumulative number of
// frames that it has consumed, and a sender never exceeds the window. Credits may be lost, repeated or late; a blocked
// sender requests them again. They carry a MAC under the communicator's secret. A credit for frames that were never
// sent has no effect.
//
// # Order
//
// Frames of one flow may overtake each other if several processors serve one queue. So every frame carries a sequence
// number, and the receiver restores the order.
//
// # Loss
//
// The switch counts the frames that have left this rank's wire, its own frames and the ones that the kernel forwarded.
// [transport.Plane.Drained] compares these counts. Dropped frames and overflowed sockets are [transport.ErrDark]. The
// package does not detect a lost peer, and ignores ICMP errors; the communicator's control connections detect it.
package ebpf
