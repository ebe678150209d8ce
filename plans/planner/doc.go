// Package planner turns a problem into a plan. Its planners are:
//
//   - static and perstep, the baselines;
//   - harvest (HARVEST), which decides when to reconfigure, with forwarding, all planes in lockstep;
//   - swot (SWOT), which splits steps unevenly and hides reconfigurations behind the other planes;
//   - weave, which does both at once, plane by plane;
//   - auto, the best of them.
//
// Demand matrices go to package spectra. Every plan states its completion time and a lower bound that holds for every
// plan of the problem. BoundProof says why.
//
// Layer: above plans, beside plans/check and plans/sim. These judge its results and must not be imported here outside
// tests. It performs no I/O and knows no collective: a problem is patterns and bytes.
//
// This package runs the planners, which are rooms under internal. From the top:
//
//	weave                  plans plane by plane, on swot
//	harvest, swot          the planners of two papers
//	baseline               static and perstep
//	offer                  how all planes serve a piece of a step, and how long that takes
//	bound, timeline        lower bounds; plans as they are written
//	model, timing, effort  the compiled problem; times of patterns; how much to search
package planner
