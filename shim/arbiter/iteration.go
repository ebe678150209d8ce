package arbiter

import (
	"fmt"
	"time"

	"lightpath/plans"
	"lightpath/shim/arbiter/sequence"
	"lightpath/shim/calls"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

const maxOperations = 8192 // whose keys the leader knows

// iteration is what the leader knows of the sequence of operations. A prediction is a hint: whatever ranks do, results
// are the same.
type iteration struct {
	learner *sequence.Learner // nil: nothing is predicted
	book    Book
	known   map[uint64]operation // by key
	calls   uint64               // collectives that ranks had called when the last operation ended
	ended   time.Time            // when it ended
	// ahead is the last operation whose ticket went out ahead. No second ticket ahead has its number, so answers to a
	// recall are never taken for those to another one.
	ahead        uint64
	hits, misses uint64
}

// operation is what a key of the sequence stands for.
type operation struct {
	shape calls.Shape
	round bool
	after uint64 // collectives since the operation before
}

// describe describes an operation for the log.
func (o *operation) describe() string {
	if o.round {
		return "grouped sends and receives"
	}
	return o.shape.String()
}

// operationOf returns the key of a work, and what it stands for.
func (it *iteration) operationOf(w *work) (uint64, operation) {
	o := operation{shape: w.shape, round: w.demand != nil, after: w.seq - it.calls}
	key := uint64(o.shape.Signature())
	if o.round { // its matrix may change
		o.after, key = w.seq>>32-it.calls, 1<<40
	}
	return (key + 1) * (2*o.after + 1) * 0x9e3779b97f4a7c15, o
}

// begun returns the time since the last operation ended.
func (it *iteration) begun(at time.Time) time.Duration {
	if it.ended.IsZero() {
		return -1
	}
	return at.Sub(it.ended)
}

// add adds an operation that has ended. It returns a text for the log, "" for none.
func (it *iteration) add(w *work, at time.Time) string {
	if it.learner == nil {
		return ""
	}
	expected, predicted := it.next()
	key, o := it.operationOf(w)
	if len(it.known) >= maxOperations {
		clear(it.known)
	}
	it.known[key] = o
	it.calls, it.ended = it.calls+o.after, at
	change := it.learner.Add(key, w.gap)
	if change == sequence.Same {
		return ""
	}
	text := ""
	if predicted {
		text = fmt.Sprintf("iteration: %s came instead of %s", o.describe(), expected.describe())
	}
	if _, c := it.learner.Next(); c != nil {
		if text != "" {
			text += "; "
		}
		return fmt.Sprintf("%siteration of %d operations found: tickets go out ahead", text, len(c.Keys))
	}
	return text + "; ranks ask for tickets again"
}

// next returns the predicted operation.
func (it *iteration) next() (o operation, ok bool) {
	if it.learner == nil {
		return o, false
	}
	at, c := it.learner.Next()
	if c == nil {
		return o, false
	}
	o, ok = it.known[c.Keys[at]]
	return o, ok
}

// gap returns the shortest time until the predicted operation that was seen, below 0: not known.
func (it *iteration) gap() time.Duration {
	if it.learner != nil {
		if at, c := it.learner.Next(); c != nil {
			return c.Gaps[at]
		}
	}
	return -1
}

// plan returns the plan of the iteration for a collective of a shape that comes next, nil if there is none.
func (it *iteration) plan(s calls.Shape) *planning.Agreed {
	o, ok := it.next()
	if !ok || o.round || o.shape.Signature() != s.Signature() {
		return nil
	}
	at, c := it.learner.Next()
	chain := it.book.Iteration(c.ID, func() []planning.Step { return it.steps(c) })
	if chain == nil || chain.Err != nil {
		return nil
	}
	return chain.Plans[at]
}

// steps returns the operations of a cycle.
func (it *iteration) steps(c *sequence.Cycle) []planning.Step {
	steps := make([]planning.Step, len(c.Keys))
	for i, key := range c.Keys {
		o, ok := it.known[key]
		steps[i] = planning.Step{Shape: o.shape, Round: o.round || !ok, Gap: c.Gaps[i]}
	}
	return steps
}

// flagsOf returns the flags of a ticket with a plan of an iteration.
func flagsOf(p *planning.Agreed) uint8 {
	if p.Problem != nil && p.Problem.Final.Kind == plans.FinalGiven {
		return ticket.Chained
	}
	return 0
}
