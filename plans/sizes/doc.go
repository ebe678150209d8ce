// Package sizes makes a plan serve more sizes than the one that it was made for.
//
// The pattern of a plan is all but its bytes and times: which circuits a plane holds in what
// order, and which flows of which step it carries between. For a fixed pattern the least
// completion time is convex and piecewise affine in the size of the call, since it is the value of
// a linear program whose right-hand side is affine in it. So a pattern whose bytes are divided
// best at two sizes has, at a size between, a division that takes no longer than the
// interpolation of the two times: the interpolation of the two divisions ([Span]). What pattern
// is best where is found by a survey of the sizes ([Survey]).
//
// Layer: inside plans, on plans/sim, plans/check and plans/internal/lp. It knows no planner: one
// is handed in. It performs no I/O. Only problems with steps have patterns here.
package sizes
