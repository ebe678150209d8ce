// Package calibrate measures what the planes of a fabric really cost: it runs collectives as jobs
// do, by rank processes over the planes themselves, and fits the cost model to what they took.
//
// Every run has a plan, and the time of a plan is a sum of costs (see [terms]): so many
// transmissions, hops, bytes on the longest circuits, reconfigurations. Collectives whose sums
// differ tell the costs apart: rings of two lengths the latency of a transmission from that of a
// call, the same circuits forwarding the cost of a hop, a switch before every step that of a
// reconfiguration from the last byte before it to the first after it, sizes the bandwidth.
//
// Layer: inside bench. It must not change planes but by running jobs on them.
package calibrate
