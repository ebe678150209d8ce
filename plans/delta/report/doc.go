// Package report draws the iteration of a job as SVG, and as one HTML page: its topology, its tasks
// over time with the critical path, and the rates between pods.
//
// Layer: inside plans/delta, on dag and internal/svg. It writes to the writer that callers pass. It
// must not check schedules: it draws them as they are.
package report
