// Package port is the optical transport over the emulated OCS: a rank has one port per plane, the plane's circuit
// leads to one other rank, and ranks forward frames for each other.
//
// A port receives the frames of all flows in one ring, and only the oldest can be read. While that frame waits to be
// forwarded, it blocks all frames behind it; this is the back-pressure of the link. A frame for this rank never blocks:
// unless Peek asks for it, the endpoint copies it to a queue of its flow. A new frame needs two free slots and a
// forwarded frame needs one (the bubble rule). So a ring of forwarders always makes progress.
//
// The package imports transport, wire, internal/frames, internal/sleep and the port memory of ocsctl/emulator. It does
// not know circuits and requests no reconfigurations; package exec does both.
package port
