// Package emulator is an optical circuit switch in software: a process that owns, per
// plane, the cross-connect map, the rate of every circuit and the time a switch takes,
// and that carries the frames of ranks over circuits which really are there or not.
//
// It is the data path of a controller (package controller), and its device. [Start] runs the whole
// (inside `lightpath ocsd`, or in a test); [Dial] is a rank's end, an ocsctl.Client whose
// [Client.Ports] are the rings that the rank's transport fills and empties. RINGS.md says what the
// two share.
//
// Layer: ocsctl, above controller/local. The switch knows ports, permutations, epochs and bytes;
// it must never learn of plans, steps or collectives, since its log is the evidence that a
// run is audited with. Ranks cannot write a map: they post what they ask for, and a plane
// moves when every port that changes has posted the same.
package emulator
