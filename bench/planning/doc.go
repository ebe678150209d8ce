// Package planning holds the planners against the numbers that they are meant to reach, all
// in one run and side by side: SWOT's instances beside CBC on the paper's program, the time of
// HARVEST's synthesis, SPECTRA's gaps, the ratio of weave to the best of the others over a
// grid, and a hit of the cache.
//
// Layer: bench, above planners and [lightpath/bench/figure], whose tables and pictures it
// makes. Unlike those of figures its times are measured; a report says on what machine. It must not
// be run beside other work if its times are to mean anything.
package planning
