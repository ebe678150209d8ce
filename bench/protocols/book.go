package protocols

import (
	"errors"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
)

// book has one plan.
type book struct{}

// Version implements [arbiter.Book].
func (book) Version() uint32 { return 1 }

// Row implements [arbiter.Book].
func (book) Row(calls.Shape, planeset.Set, []circuit.Permutation) (planning.Row, error) {
	return planning.Row{Best: &groupAgreed}, nil
}

// Iteration implements [arbiter.Book].
func (book) Iteration(uint64, func() []planning.Step) *planning.Iteration { return nil }

// Demand implements [arbiter.Book].
func (book) Demand(*planning.Demand, []circuit.Permutation) (*plans.Plan, error) {
	return nil, errors.New("no rounds")
}

// Encoded implements [arbiter.Book].
func (book) Encoded(planning.ID) ([]byte, error) { return nil, errors.New("no plans") }
