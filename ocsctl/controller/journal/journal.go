// Package journal is what makes a controller outlive itself: leadership over the planes of a
// fabric, the intents and maps that the next controller starts from, and the history. A [Store]
// is where that is kept; this package has the one that keeps it in memory, package etcd the one
// that lasts.
//
// Layer: ocsctl, between the core, which writes a controller.Journal without knowing what is
// behind it, and package lead, which decides who rules. Nothing here moves a plane.
package journal

import (
	"context"
	"errors"

	"lightpath/ocsctl/controller"
)

// Errors of stores. Each comes with the key that it is about.
var (
	// ErrCorrupt: a stored value cannot be what a controller wrote.
	ErrCorrupt = errors.New("stored value is corrupt")
	// ErrOtherFabric: what is stored is of planes that this fabric does not have.
	ErrOtherFabric = errors.New("the journal is of another fabric")
)

// DefaultHistory is how many events a store keeps where its configuration does not say.
const DefaultHistory = 10000

// Leader says who rules. The zero value means that nobody is known to.
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
	// Campaign waits until this controller rules. It returns the error of ctx when that ends
	// first, and others only where trying again would not help.
	Campaign(ctx context.Context) (Leadership, error)
	// Leader returns who ruled when this store last looked, without looking.
	Leader() Leader
	// Close lets go of the store, not of a leadership: whoever stops in peace resigns before.
	Close() error
}

// Leadership is one controller's rule: while it lasts, it is the only one whose writes the
// store takes. After it has ended every intent fails with an error that wraps
// controller.ErrNotLeader.
type Leadership interface {
	controller.Journal
	// Token fences this rule: it is greater than that of every rule before.
	Token() uint64
	// LastSeq is the number of the newest event that rules before have recorded.
	LastSeq() uint64
	// Recovered returns where the rule before left each plane. A plane without a record has the
	// zero value, and where no plane has one the slice is nil. It is called once, and the journal
	// takes intents only when it has succeeded. Values that cannot be right and those of other
	// ports or planes are refused, with the key.
	Recovered(ports, planes int) ([]controller.Recovered, error)
	// Baseline records where planes are that have no record yet: at[j] is plane j, and says
	// nothing without a map.
	Baseline(at []controller.Recovered)
	// Done is closed when the rule has ended, and before anybody else can rule.
	Done() <-chan struct{}
	// Err is nil while the rule lasts, by the clock too, and then says why it ended. It is cheap
	// enough to be asked before every move.
	Err() error
	// Resign ends the rule: what has been recorded is written first, as long as ctx lasts.
	Resign(ctx context.Context) error
}

// Sequence numbers events for a history that outlives the rule that counts them. It is for one
// goroutine at a time.
type Sequence struct{ last uint64 }

// StartAfter continues a history whose newest event has this number.
func (s *Sequence) StartAfter(last uint64) { s.last = last }

// Last returns the newest number.
func (s *Sequence) Last() uint64 { return s.last }

// Number gives e the number that it has, or the next one where that has been used.
func (s *Sequence) Number(e *controller.Event) {
	e.Seq = max(e.Seq, s.last+1)
	s.last = e.Seq
}
