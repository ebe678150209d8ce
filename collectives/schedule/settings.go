package schedule

// Settings is what options ask for, for packages that make schedules of their own.
type Settings struct {
	Disjoint bool
	Order    []int // nil: the algorithm's own
}

// Apply returns what opts ask for.
func Apply(opts ...Option) Settings {
	var o options
	for _, set := range opts {
		set(&o)
	}
	return Settings{Disjoint: o.disjoint, Order: o.order}
}

// IOBlocks returns the blocks of Input and Output of c on n ranks, at the rank that has most
// of them: [Schedule].Blocks of every schedule of c.
func (c Collective) IOBlocks(n int) (in, out int) { return c.ioBlocks(n) }
