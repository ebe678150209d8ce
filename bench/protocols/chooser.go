package protocols

import "math/rand/v2"

// Chooser makes the decisions of a run.
type Chooser interface {
	// Choose returns a number in 0..n-1, for n > 0. Number 0 is the plainest decision: no fault, the oldest message, the
	// shortest time. So a run whose later choices are all 0 goes on without faults.
	Choose(n int) int
}

// random makes the choices of a seed.
type random struct{ r *rand.Rand }

// Random returns a chooser whose decisions depend on the seed only.
func Random(seed uint64) Chooser { return random{rand.New(rand.NewPCG(seed, 0))} }

// Choose implements [Chooser].
func (c random) Choose(n int) int { return c.r.IntN(n) }

// recorder passes choices on and keeps them.
type recorder struct {
	Chooser
	made []int
}

// Choose implements [Chooser].
func (c *recorder) Choose(n int) int {
	i := c.Chooser.Choose(n)
	c.made = append(c.made, i)
	return i
}

// Replay returns a chooser that repeats choices, and then chooses 0. A choice that is out of range is taken modulo n:
// shrunk choices may meet other questions than those for which they were made.
func Replay(choices []int) Chooser { return &replay{left: choices} }

type replay struct{ left []int }

// Choose implements [Chooser].
func (c *replay) Choose(n int) int {
	if len(c.left) == 0 {
		return 0
	}
	i := c.left[0]
	c.left = c.left[1:]
	return i % n
}
