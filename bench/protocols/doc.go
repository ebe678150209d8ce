// Package protocols runs the protocols that decide when circuits move, in simulated time and with injected faults. It
// runs the real code: [controller.Core] without goroutine, [arbiter.Machine] of each leader, and the rank's side of
// package circuits. The package models everything around it: etcd, switches, control connections, processes, clocks.
//
// One goroutine runs a world. Each open decision (which message arrives next, which fault happens, how long a switch
// takes) is one call of a [Chooser]. So the choices are the whole input of a run: a seed makes them, a file keeps them,
// the explorer enumerates them, and the shrinker makes them fewer. Equal choices give an equal trace.
//
// docs/design/simulation.md has the model, the faults and the invariants.
//
// Layer: inside bench. It must not open files, sockets or goroutines in a run, and must not read a clock.
package protocols
