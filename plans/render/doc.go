// Package render draws plans. A plane is a row and a step has a colour. Reconfigurations are hatched and have the map
// that they switch to. Arrows mark forwarding, and lines mark the completion time and the lower bound. On demand, the
// times that a run measured are below the plan, on one time axis.
//
// Layer: inside plans. It writes SVG and HTML to the caller's writer, without fonts or references to other files.
// Pictures have no scripts; a page has one script, which zooms them. It draws infeasible plans, too.
package render
