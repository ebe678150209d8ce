// Package kernel builds planes in the Linux kernel that really lose frames on a dark or wrong circuit. Every rank has a
// network namespace with one veth per plane into the namespace of the switch. eBPF programs at the switch's ends
// redirect frames by a map port -> port, which is the cross-connect. Programs at the ranks' ends forward frames for
// other ranks. HTB shapes each port where its rank sends.
//
// Several hosts can share a fabric, each with its own ranks. Circuits between hosts use an Ethernet per plane
// (wire.go), and package agent combines the boards of all hosts.
//
// Everything is pinned or named: a fabric needs no process. [Up] builds it, [Down] removes everything with its name,
// and [Load] finds it. Ranks use it by [Attach], and the only writer of its circuits by [Open]. [Device] lets device
// models move the circuits.
//
// Layer: ocsctl. It knows ports, permutations and frames, never plans, collectives or epochs of
// communicators. It must not print, and must not leave the calling thread in another namespace.
package kernel
