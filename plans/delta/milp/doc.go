// Package milp states DELTA's exact models of a job's topology as mixed-integer programs, and reads
// their solutions as schedules. DELTA-Topo chooses circuits under fair sharing. DELTA-Joint chooses
// circuits and rates (DELTA, section III-B, equations 3 to 18, with the pruning of section IV-A).
// docs/jobs-exact.md lists the differences from the text, with reasons.
//
// Layer: inside plans/delta, on dag, solver and plans/mip. It must not simulate or check schedules.
package milp
