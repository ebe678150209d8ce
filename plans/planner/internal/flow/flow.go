package flow

import (
	"errors"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// ErrInput is wrapped by errors about maps and flows that describe no instance.
var ErrInput = errors.New("flow: bad instance")

// Options bound a computation. The zero value asks for the best theta on paths of any length.
type Options struct {
	// MaxHops is the most circuits of a path; 0 means any number.
	MaxHops int
	// Epsilon is the relative gap between Theta and Upper at which to stop. 0 means the method's best: up to rounding
	// errors for the exact method, else 1e-3.
	Epsilon float64
	// Work bounds the operations spent, roughly in nanoseconds; 0 means 1e9. When the work is spent, the result is
	// feasible and Upper is a bound, but their gap may be large.
	Work int64
}

const (
	defaultWork    = 1e9
	exactEpsilon   = 1e-9
	defaultEpsilon = 1e-3
)

// Result holds the routes of flows, and bounds of their rate.
type Result struct {
	// Theta is the rate that every flow gets at once, in rates of one circuit, by Routes. It is
	// +Inf where there are no flows.
	Theta float64
	// Upper is proven: no routes on paths of the allowed hops give every flow more.
	Upper float64
	// Hops is the longest path of Routes.
	Hops int
	// Routes say how each flow is divided: Bytes are its parts, which sum to 1 for each flow.
	// Flows appear in no particular order, those of one source together.
	Routes []plans.Route
	// Work is the work spent, in the units of [Options.Work].
	Work int64
}

// Concurrent returns the largest theta such that all flows together can each carry theta times the rate of one circuit.
// Every circuit of maps (one permutation per plane) has capacity 1, and flows divide freely over paths of at most
// o.MaxHops circuits. Flows are pairs {source, destination} of distinct ranks, none listed twice. An error wraps
// [plans.ErrUnreachable], naming the first flow without such a path, or [ErrInput].
func Concurrent(maps []circuit.Permutation, flows [][2]int, o Options) (*Result, error) {
	if len(flows) == 0 {
		return &Result{Theta: math.Inf(1), Upper: math.Inf(1)}, nil
	}
	s, err := newSolver(maps, flows, o)
	if err != nil {
		return nil, err
	}
	s.solve(s.most, s.epsilon, s.left())
	return s.result(), nil
}
