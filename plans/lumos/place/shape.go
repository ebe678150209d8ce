package place

import (
	"fmt"
	"math"
)

// Shape is how servers nest: a leaf has Nest[0] servers, a pod Nest[1] leaves, and what
// contains pods Nest[2] of them, and so on to the whole cluster.
type Shape struct {
	ServerGPUs int // GPUs of a server, at most 64
	Nest       []int
}

// The levels of domains that every shape has.
const (
	Leaf = 0
	Pod  = 1
)

const maxServerGPUs = 64

// Check returns what is wrong with a shape.
func (s Shape) Check() error {
	if s.ServerGPUs < 1 || s.ServerGPUs > maxServerGPUs {
		return fmt.Errorf("place: %d GPUs a server; want 1 to %d", s.ServerGPUs, maxServerGPUs)
	}
	if len(s.Nest) < 2 {
		return fmt.Errorf("place: %d levels; want leaves and pods at least", len(s.Nest))
	}
	servers := 1
	for level, n := range s.Nest {
		if n < 1 {
			return fmt.Errorf("place: level %d has %d parts", level, n)
		}
		if servers *= n; servers > 1<<24 {
			return fmt.Errorf("place: more than %d servers", 1<<24)
		}
	}
	return nil
}

// Domains returns how many domains of a level there are.
func (s Shape) Domains(level int) int {
	n := 1
	for _, k := range s.Nest[level+1:] {
		n *= k
	}
	return n
}

// Size returns the servers of a domain of a level.
func (s Shape) Size(level int) int {
	n := 1
	for _, k := range s.Nest[:level+1] {
		n *= k
	}
	return n
}

// Servers returns the servers of the cluster.
func (s Shape) Servers() int { return s.Size(len(s.Nest) - 1) }

// gpus returns the GPUs of the cluster.
func (s Shape) gpus() int { return s.Servers() * s.ServerGPUs }

// Of returns the domain of a level in which a server is.
func (s Shape) Of(level int, server int32) int { return int(server) / s.Size(level) }

// Grid is how a job's ranks, which are servers, divide its work. Server s of stage p and replica d
// is number p DP + d.
type Grid struct {
	PP, DP int
	// EP is how many consecutive replicas of a stage exchange tokens, which confines them to a
	// pod; it divides DP. 1: none.
	EP int
}

// Servers returns the servers of the grid.
func (g Grid) Servers() int { return g.PP * g.DP }

// Check returns what is wrong with a grid.
func (g Grid) Check() error {
	switch {
	case g.PP < 1 || g.DP < 1 || g.EP < 1:
		return fmt.Errorf("place: PP %d, DP %d, EP %d; want 1 at least", g.PP, g.DP, g.EP)
	case g.DP > math.MaxInt32/g.PP:
		return fmt.Errorf("place: PP %d x DP %d: more than %d servers", g.PP, g.DP, math.MaxInt32)
	case g.DP%g.EP != 0:
		return fmt.Errorf("place: EP %d does not divide DP %d", g.EP, g.DP)
	}
	return nil
}
