// Package trace holds the calls of one iteration of a job: which communicator makes which call, with how many bytes,
// and how long the job computes before it. It has the file format of traces.
//
// Layer: inside plans, a leaf beside circuit. It knows neither plans nor collectives: collective and algorithm are
// names. It performs no I/O.
package trace
