// Package lp solves the linear programs that planning needs: covering programs
//
//	minimize c.x   subject to   A x >= b,  x >= 0,   with c >= 0,
//
// by the dual simplex method. Because c >= 0, x = 0 is dual feasible. So there is no first phase, and rows may be added
// at any time. The objective rises from below, so a call with a cutoff ends as soon as the value reaches it. The
// dictionary is dense: it suits small programs, with a few thousand elements (columns times rows).
package lp
