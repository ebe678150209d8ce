// Package demo runs the project's main job on one machine without root. Rank processes call collectives through the
// NCCL ABI, over an emulated optical switch that changes circuits during the collective. Every experiment runs under
// several planners. The report shows measured beside predicted times, and the switch's log is audited against the plan.
//
// Layer: inside bench.
package demo
