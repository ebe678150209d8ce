// Package messages defines how ranks move whole messages between registered memory, mostly memory of devices. RDMA
// ports (rdma/rendezvous) and network plugins (netplugin) implement [Endpoint]. Both use [Offer]: a receiver tells the
// sender of a message that it waits for the message, and for which call. So the sender detects different calls before
// it sends a byte.
//
// It imports nothing of Lightpath. It must not know devices, streams or calls; package shim does.
package messages
