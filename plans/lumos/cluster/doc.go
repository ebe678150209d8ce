// Package cluster simulates a cluster that runs training jobs: when they start, how long they run on
// a shared network, and when they end (LumosCore, section 6).
//
// Layer: inside plans/lumos. Simulated time is in seconds, and rates are in units of one GPU's port.
// The package reads no clock, and no files other than the readers that callers pass. Equal input gives
// an equal result.
//
// A job runs iterations of computation and phases of communication ([place.Phase]). The flows of a
// phase share links max-min fairly with those of all other jobs. They progress together, as the steps
// of a collective do, so a phase is as fast as its slowest flow. A port of a GPU, a link between leaf
// and spine, and a link of the core have the same rate.
package cluster
