// Package emulator is an optical circuit switch in software. For each plane it has the cross-connect map, the rate of
// every circuit and the reconfiguration time. It carries the frames of ranks over these circuits, and loses frames
// without a circuit.
//
// It is the data path of a controller (package controller), and its device. [Start] runs both, inside
// `lightpath ocsd` or in a test. [Attach] is a rank's end, an ocsctl.Client whose [Client.Ports] are the rings that
// the rank's transport fills and empties. RINGS.md describes the shared memory.
//
// Layer: ocsctl, above controller/local. The switch knows ports, permutations, epochs and bytes. It must not know
// plans, steps or collectives, because runs are audited against its log. Ranks cannot write a map: they post what they
// ask for, and a plane moves when every port that changes has posted the same.
package emulator
