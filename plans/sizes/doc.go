// Package sizes makes a plan serve more sizes than the one that it was made for.
//
// The pattern of a plan is all but its bytes and times: which circuits a plane holds in what order, and which flows of
// which step it carries between. For a fixed pattern, the least completion time is the value of a linear program whose
// right-hand side is affine in the size of the call. So it is convex and piecewise affine in the size. Take a pattern
// whose bytes are divided best at two sizes. At a size between, the interpolation of the two divisions takes no longer
// than the interpolation of the two times ([Span]). A survey of the sizes finds the best pattern for each ([Survey]).
//
// Layer: inside plans, on plans/sim, plans/check and plans/internal/lp. It knows no planner: the caller passes one. It
// performs no I/O. Only problems with steps have patterns here.
package sizes
