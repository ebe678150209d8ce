// Package emulator is an optical circuit switch in software: a process that owns, per plane, the cross-connect
// map, the rate of every circuit and the time of a switch. It carries the frames of ranks over these circuits, and
// loses frames that meet none.
//
// It is the data path of a controller (package controller), and its device. [Start] runs both, inside
// `lightpath ocsd` or in a test. [Attach] is a rank's end, an ocsctl.Client whose [Client.Ports] are the rings that
// the rank's transport fills and empties. RINGS.md describes the shared memory.
//
// Layer: ocsctl, above controller/local. The switch knows ports, permutations, epochs and bytes;
// it must never learn of plans, steps or collectives, since its log is the evidence that a
// run is audited with. Ranks cannot write a map: they post what they ask for, and a plane
// moves when every port that changes has posted the same.
package emulator
