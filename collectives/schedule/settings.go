package schedule

import "slices"

// Settings is what options ask for; packages that make schedules of their own read it.
type Settings struct {
	Disjoint bool
	Order    []int // nil: the algorithm's own
}

// Option varies what [Build] makes.
type Option func(*Settings)

// Disjoint leaves out the copies of Input that only in-place calls need (AllToAll,
// SendRecv). The schedule must then not be used where Input and Output overlap. The steps
// and their flows stay the same.
func Disjoint() Option { return func(s *Settings) { s.Disjoint = true } }

// WithOrder sets the order of an algorithm that has one, as "@" in its name does, which it
// overrides. [Build] fails with [ErrOrder] unless order is a permutation of what the
// algorithm orders ([StepOrder]), or two of them for an AllReduce of two halves. nil is the
// algorithm's own.
func WithOrder(order []int) Option {
	order = slices.Clone(order)
	return func(s *Settings) { s.Order = order }
}

// Apply returns what opts ask for.
func Apply(opts ...Option) Settings {
	var s Settings
	for _, set := range opts {
		set(&s)
	}
	return s
}
