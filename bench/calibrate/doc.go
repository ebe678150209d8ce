// Package calibrate measures the costs of a fabric's planes: rank processes run collectives over the planes, as jobs
// do, and the cost model is fitted to the measured times.
//
// Every run follows a plan, and the time of a plan is a sum of costs (see [terms]): transmissions, hops, bytes on the
// longest circuits and reconfigurations. The workloads differ in these sums, so that each cost can be determined. Two
// rings of different length separate the latency of a transmission from that of a call. Forwarding over the same
// circuits gives the cost of a hop. A reconfiguration before every step gives the time from the last byte on the old
// circuits to the first on the new ones. Several sizes give the bandwidth.
//
// Layer: inside bench. It changes planes only by running jobs on them.
package calibrate
