package schedule

import "slices"

// Settings are the result of options. Other packages that build schedules read it.
type Settings struct {
	Disjoint bool
	Order    []int // nil: the default of the algorithm
}

// Option changes the result of [Build].
type Option func(*Settings)

// Disjoint omits the copies of Input that only in-place calls need (AllToAll, SendRecv). Calls whose Input and Output
// overlap must not use the schedule. The steps and their flows do not change.
func Disjoint() Option { return func(s *Settings) { s.Disjoint = true } }

// WithOrder sets the order of an algorithm and overrides the order in its name ("@"). [Build] returns [ErrOrder] unless
// order is a permutation of the result of [StepOrder], or two of them for an AllReduce with two halves. nil means the
// default of the algorithm.
func WithOrder(order []int) Option {
	order = slices.Clone(order)
	return func(s *Settings) { s.Order = order }
}

// Apply returns the settings of opts.
func Apply(opts ...Option) Settings {
	var s Settings
	for _, set := range opts {
		set(&s)
	}
	return s
}
