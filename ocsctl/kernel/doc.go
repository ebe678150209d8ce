// Package kernel builds planes in the Linux kernel whose circuits are real: a frame on a dark or
// wrong circuit is gone. Every rank has a network namespace with one veth per plane into the
// namespace of the switch. eBPF programs at the switch's ends redirect what enters a port by a map
// port -> port, which is the cross-connect; programs at the ranks' ends pass on what is for others.
// HTB shapes each port where its rank sends.
//
// Several hosts can have one fabric, each its own ranks: circuits between hosts lead over an Ethernet
// per plane that knows nothing of them (wire.go), and package agent makes one board of all.
//
// Everything is pinned or named: a fabric needs no process. [Up] builds it, [Down] removes whatever
// carries its name, [Load] finds it, [Attach] is how a rank uses it, [Open] how the one writer of
// the circuits does, and [Device] lets device models move them.
//
// Layer: ocsctl. It knows ports, permutations and frames, never plans, collectives or epochs of
// communicators. It must not print, and must not leave the calling thread in another namespace.
package kernel
