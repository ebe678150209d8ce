// Package render draws plans: planes as rows, steps as colours, reconfigurations hatched
// with the map they switch to, forwarding as a row of arrows, joint transmits linked from
// plane to plane, idle time as empty track, completion time and lower bound as lines; on
// demand what a run measured below what was predicted, on one time axis.
//
// Layer: inside plans. It writes SVG and HTML to the writer that it is given, without fonts or references to other
// files. Pictures have no scripts; a page has one script, which zooms them. It judges nothing: an infeasible plan is
// drawn as it is.
package render
