// Package lp solves the linear programs that planning needs: covering programs
//
//	minimize c.x   subject to   A x >= b,  x >= 0,   with c >= 0,
//
// by the dual simplex method. Because c >= 0, x = 0 is dual feasible. So there is no first phase, and rows may be added
// at any time. The objective rises from below, so a caller that only wants something better than a cutoff gets its
// answer early. The dense dictionary is meant for programs of up to a few thousand columns times rows in play, not for
// general use. It belongs to plans and performs no I/O.
package lp
