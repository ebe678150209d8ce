// Package trace holds what happened in a simulated run: messages between actors, their own steps, faults and the
// violation. It draws the end of a run as a sequence diagram.
//
// Layer: a leaf of bench/protocols, on internal/svg. It must not know the model of a run.
package trace
