// Package sim runs a [dag.Graph] on a topology, event by event, and says when everything
// ends: with bandwidth shared fairly, or given to critical transfers first.
//
// Layer: plans, above dag. It chooses nothing but rates; topologies are chosen by plans/delta,
// and plans/delta/check judges what comes out without sharing code with it.
//
// Method. Rates change only when a transfer starts or ends, so time advances from one such
// event to the next and nothing is stepped. Work makes no event: its end is known once the last
// task that it waits for has ended, so ends propagate through work at once (run.go). Rates are max-min fair
// per flow over directed links and NICs, class by class of priority, where there are
// classes (share.go).
//
// Steady state: a [Runner] allocates nothing. Results depend on graph, circuits and order alone.
package sim
