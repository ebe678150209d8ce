// Package planner turns a problem into a plan: the baselines static and perstep, HARVEST
// (when to reconfigure, with forwarding, all planes in lockstep), SWOT (uneven splitting
// and reconfiguration hidden behind the other planes), weave (both at once, plane by plane)
// and auto, the best of them. Demand matrices go to package spectra.
//
// Layer: above plans, beside plans/check and plans/sim, which judge its results and must
// not be imported here outside tests. It performs no I/O and knows no collective: a
// problem is patterns and bytes. Every plan states its completion time and a lower bound
// that holds for every plan of the problem (bound.go); BoundProof says why.
package planner
