// Package rendezvous sends whole messages between registered memory of ranks over RDMA, without a copy by a CPU. The
// memory is mostly device memory, registered as a dma-buf.
//
// It uses the verbs of package rdma, transport, messages and internal/poller. It must not know devices, streams or
// calls; package shim does.
//
// # Messages
//
// Both ranks number the messages of each direction on a plane in the same order. The receiver of message k sends an
// offer: a small write into a slot at the sender with the address, key, size and tag of the destination. The sender
// compares the offer with its own message k. If they agree, it writes the message directly to the offered address, with
// the message's number as immediate. So no byte is written before the receiver waits for it, and a mismatch is an error
// before a byte is sent.
//
// A receiver has at most window outstanding offers: it sends offer k + window after message k has arrived. This is the
// flow control. No offer overwrites an unused one, and no write waits for a receive.
//
// # Completion
//
// A sent message is complete when the device reports that the peer has acknowledged all of it. A received message is
// complete when its immediate arrives, because an RDMA write is in memory before its immediate. This holds for reads by
// the CPU; package shim makes the bytes visible to a device.
//
// Queue pairs are reliable, so the path back carries acknowledgements and offers.
package rendezvous
