// Package packets says when a call uses packet planes, which need no circuits, instead of planes with circuits.
//
// Layer: inside plans, above the planners. The communicators of a job and the planner of iterations share this rule. It
// performs no I/O, reads no clock, and knows neither collectives nor transports.
package packets
