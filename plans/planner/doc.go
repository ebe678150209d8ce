// Package planner turns a problem into a plan. Its planners are:
//
//   - static and perstep, the baselines;
//   - harvest (HARVEST), which decides when to reconfigure, with forwarding, all planes in lockstep;
//   - swot (SWOT), which splits steps unevenly and hides reconfigurations behind the other planes;
//   - weave, which does both at once, plane by plane;
//   - auto, the best of them.
//
// Demand matrices go to package spectra.
//
// Layer: above plans, beside plans/check and plans/sim. These judge its results and must not be imported here outside
// tests. It performs no I/O and knows no collective: a problem is patterns and bytes. Every plan states its completion
// time and a lower bound that holds for every plan of the problem (bound.go). BoundProof says why.
package planner
