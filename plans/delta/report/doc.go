// Package report draws a job's iteration: its topology, the graph over time with the critical
// path, and what links between pods carry when; as SVG, and all of it as one page.
//
// Layer: inside plans/delta, on dag and internal/svg. It writes to the writer that it is given,
// without scripts, fonts or references to other files. It judges nothing: a schedule is drawn
// as it is.
package report
