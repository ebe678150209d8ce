// Package baseline holds the planners that choose no switches: [Static] never switches, and [PerStep] switches before
// each new pattern. Other planners compare with them and start from them.
//
// Layer: on room offer of plans/planner. It must not know other planners.
package baseline
