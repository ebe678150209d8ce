package journal

import (
	"context"
	"errors"

	"lightpath/ocsctl/controller"
)

// Errors of stores. Errors that wrap them name the key.
var (
	// ErrCorrupt: no controller can have written the stored value.
	ErrCorrupt = errors.New("stored value is corrupt")
	// ErrOtherFabric: the stored planes do not fit this fabric.
	ErrOtherFabric = errors.New("the journal is of another fabric")
)

// DefaultHistory is how many events a store keeps by default.
const DefaultHistory = 10000

// Leader identifies the controller that rules. The zero value: none is known.
type Leader struct {
	Name     string `json:"name"`              // of the controller
	Address  string `json:"address,omitempty"` // where ranks and operators reach it, if it says so
	Software string `json:"software,omitempty"`
	Token    uint64 `json:"token"`
}

// Store keeps the state of the planes of one fabric, for all its controllers. Methods may be
// called from any goroutine.
type Store interface {
	controller.History
	// Campaign waits until this controller rules. It returns the error of ctx if that ends first, and other errors
	// only if a further attempt would not help.
	Campaign(ctx context.Context) (Leadership, error)
	// Leader returns the last known leader. It does not read the store.
	Leader() Leader
	// Close closes the store. It does not end a rule in order: the caller calls Resign before.
	Close() error
}

// Leadership is one controller's rule. While it lasts, the store accepts writes of this controller only. After it has
// ended, every intent fails with an error that wraps controller.ErrNotLeader.
type Leadership interface {
	controller.Journal
	// Token returns the rule's fencing token. It is greater than those of all earlier rules.
	Token() uint64
	// LastSeq returns the number of the newest event of earlier rules.
	LastSeq() uint64
	// Recovered returns the state in which the rule before left each plane. A plane without a record has the zero
	// value; the slice is nil if no plane has one. It is called once, and the journal accepts intents only after it
	// has succeeded. A corrupt value, or one that does not fit the fabric, is an error that names the key.
	Recovered(ports, planes int) ([]controller.Recovered, error)
	// Baseline records the state of planes that have no record yet: at[j] is plane j. It ignores entries without a
	// map.
	Baseline(at []controller.Recovered)
	// Done is closed when the rule has ended, and before another controller can rule.
	Done() <-chan struct{}
	// Err returns nil while the rule lasts, then why it ended. It also checks the clock. It is fast enough to call
	// before every move.
	Err() error
	// Resign ends the rule. Before that it writes the recorded events, unless ctx ends first.
	Resign(ctx context.Context) error
}

// number keeps the number of e if it is above last, the newest one. Otherwise it gives e the next number.
func number(e *controller.Event, last uint64) uint64 {
	e.Seq = max(e.Seq, last+1)
	return e.Seq
}
