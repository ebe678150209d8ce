// Package controller decides which rank may use the planes of a fabric, where their circuits go, and when they
// move. One goroutine, the core, makes all decisions.
//
//   - Front ends connect ranks to it: package local by shared memory on one host, package rpc by gRPC.
//   - Devices move the circuits: package switches through drivers of real switches, package emulator in memory,
//     package kernel in the kernel.
//   - A journal keeps what the next controller must know.
//
// Layer: ocsctl. It knows ports, permutations and epochs. It must not import plans of collectives, nor collectives.
package controller
