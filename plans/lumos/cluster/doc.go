// Package cluster simulates a cluster that runs training jobs: when they start, how long they
// run on a network that they share, and when they end (LumosCore, section 6).
//
// Layer: inside plans. Simulated time is in seconds, rates are in units of one GPU's port; the
// package reads no clock and no files but through the readers it is given. Equal input, equal result.
//
// A job is iterations of computation and phases of communication ([place.Phase]). The flows of a phase
// share links max-min fairly with those of all other jobs, and move in lockstep, as the steps of
// a collective do: a phase is as fast as its slowest flow. A port of a GPU, a link between leaf and
// spine and a link of the core all have the same rate.
package cluster
