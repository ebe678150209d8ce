// Package planning compares the planners with the numbers that they must reach. It measures SWOT's instances beside CBC
// on the paper's program, and the time of HARVEST's synthesis. It also measures SPECTRA's gaps, the ratio of weave to
// the best other planner over a grid, and a cache hit.
//
// Layer: bench, above planners and [lightpath/bench/figure], whose tables and pictures it makes. Unlike the times of
// figures, its times are measured, and a report names the machine. Run it without other work.
package planning
