// Package cache keeps plans in a directory of files, with a table in memory before it.
//
// Layer: inside plans, on plans/sizes; with the codec it is the only part of plans that touches
// files. It neither plans nor decides when to: a miss is an answer.
//
// A plan is found by its [Key], all that it depends on, and by the size of the call, which lies in the interval of some
// [sizes.Span]. A cached file holds a span. It is a plan file with more fields: the key, the sizes, the problem, and
// the plan and problem of the other end. So every command that reads plans reads it. Its name ends with the hash of its
// key. A file is used only if it decodes, its key is the requested one, its digests are right and its plans are
// feasible. Otherwise it is refused with the reason, and stays in the directory for an operator until it is removed or
// replaced. A file of another release is [ErrStale], and not damaged.
package cache
