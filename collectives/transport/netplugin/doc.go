// Package netplugin is the transport over network plugins of NCCL (libnccl-net.so). Each pair of ranks has a connection
// of the plugin per plane and direction. A frame is one message of it.
//
// The package defines the calls of plugins that it uses ([Plugin]); cgo/plugins implements them. It contains no C and
// starts no goroutine. It imports transport, wire, messages, internal/dma, internal/sleep and shmring. It must not
// know libraries, files or versions of the interface.
//
// # Frames
//
// The memory of a connection is a ring of slots for frames. A slot holds a header (package wire) and a payload.
// Messages of a connection arrive in the order of their receives, so frame i uses slot i mod slots at both ends.
//
// # Flow control
//
// A receiver posts a receive for every free slot. A sender has at most as many messages under way as there are slots.
// If there is no receive for a message, the plugin holds it back or refuses it (no request), and the rank tries again.
//
// # Completion
//
// A plugin moves bytes only while a rank calls it. So a rank calls it until its messages are complete: the plane is a
// [transport.Borrower] that returns the mark of a payload when the plugin has sent it, although it copies the payload.
// TrySend returns its count only then.
//
// # Messages
//
// A [Messenger] moves whole messages between registered memory, mostly of GPUs, instead of frames: see
// docs/design/nic-memory.md. Its rings carry the offers of receivers.
//
// # Closing
//
// Some plugins take a connection that is closed with unfinished requests for an abort, and abort other connections
// too. So a rank that closes sends every peer a farewell for each posted receive. It waits for the farewells of its
// peers, at most for [Options].Linger.
package netplugin
