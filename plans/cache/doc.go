// Package cache keeps plans in a directory of files, and recently used plans in memory.
//
// Layer: inside plans, on plans/sizes; with the codec it is the only part of plans that touches
// files. It neither plans nor decides when to plan: it reports a miss.
//
// A plan is found by its [Key] and by the size of the call, which lies in the interval of a [sizes.Span]. A cached file
// holds a span. The file is a plan file with more fields: the key, the sizes, the problem, and the plan and problem of
// the smallest size. So every command that reads plans reads it. Its name ends with the hash of its key. A file is used
// only if it decodes, its key is the requested one, its digests are right and its plans are feasible. Otherwise it is
// refused with the reason, and stays in the directory for an operator until it is removed or replaced. A file of
// another release is not damaged: its error is [ErrStale].
package cache
