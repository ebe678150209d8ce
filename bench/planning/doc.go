// Package planning compares the planners with the numbers that they must reach, in one run, side by side. SWOT's
// instances beside CBC on the paper's program, the time of HARVEST's synthesis, SPECTRA's gaps, the ratio of weave to
// the best of the others over a grid, and a hit of the cache.
//
// Layer: bench, above planners and [lightpath/bench/figure], whose tables and pictures it makes. Unlike the times of
// figures, its times are measured, and a report names the machine. Run it without other work.
package planning
