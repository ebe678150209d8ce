package protocols

import (
	"errors"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
)

// book has one plan.
type book struct{ plan *planning.Agreed }

// newBook returns the book of a communicator: its plans begin with a ring on each plane.
func newBook(cfg *groupConfig) book {
	b := book{&planning.Agreed{ID: planning.ID{1}}}
	if !cfg.anywhere {
		ring := slices.Repeat([]circuit.Permutation{circuit.Shift(len(cfg.ports), 1)}, cfg.planes)
		b.plan.Plan = &plans.Plan{Initial: ring, Planes: make([][]plans.Entry, cfg.planes)}
	}
	return b
}

// Version implements [arbiter.Book].
func (book) Version() uint32 { return 1 }

// Row implements [arbiter.Book].
func (b book) Row(calls.Shape, planeset.Set, []circuit.Permutation) (planning.Row, error) {
	return planning.Row{Best: b.plan}, nil
}

// Iteration implements [arbiter.Book].
func (book) Iteration(uint64, func() []planning.Step) *planning.Iteration { return nil }

// Demand implements [arbiter.Book].
func (book) Demand(*planning.Demand, []circuit.Permutation) (*plans.Plan, error) {
	return nil, errors.New("no rounds")
}

// Encoded implements [arbiter.Book].
func (book) Encoded(planning.ID) ([]byte, error) { return nil, errors.New("no plans") }
