// Package milp states DELTA's exact models of a job's topology as mixed-integer programs and
// makes schedules of their solutions. DELTA-Topo chooses circuits under fair sharing,
// DELTA-Joint circuits and rates together (DELTA, section III-B, equations 3 to 18, with the
// pruning of section IV-A). docs/jobs-exact.md lists the
// differences from the text, with reasons.
//
// Layer: inside plans/delta, on dag and internal/mip. It neither simulates nor judges; solving
// is plans/delta/solver's.
package milp
