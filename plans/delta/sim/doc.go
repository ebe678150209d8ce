// Package sim runs a [dag.Graph] on a topology, event by event. It computes when each task ends, with
// bandwidth shared fairly or given to critical transfers first.
//
// Layer: inside plans/delta, above dag. It chooses only rates. plans/delta chooses topologies, and
// plans/delta/check checks the results without sharing code with this package.
//
// Method. Rates change only when a transfer starts or ends, so time advances from one such event to the
// next. Work causes no event: its end is known when its last predecessor has ended, so ends propagate
// through work at once (run.go). Rates are max-min fair per flow over directed links and NICs, one
// class of priority after the other (share.go).
//
// In steady state a [Runner] allocates nothing. Results depend only on the graph, the circuits and the
// order.
package sim
