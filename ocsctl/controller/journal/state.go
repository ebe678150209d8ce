package journal

import (
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// EpochBlock is how many epochs a plane reserves at a time: all that it publishes are below a
// mark that was durable before, so that nothing but an intent is ever waited for.
const EpochBlock = 1024

// State is what a journal keeps of one plane. It is folded from intents and events, and written
// as a whole: the newest says all. The zero value is a plane without a record. Maps are shared
// and read-only.
type State struct {
	Epoch    uint32 // the newest that is known to have been published
	Reserved uint32 // above every published epoch
	Revision uint64 // counts the changes of Map
	Map      circuit.Permutation
	Intent   *controller.Intent
	Failed   bool
	Disabled string // why an operator took the plane out of service; "" where nobody did
}

// Recorded reports whether anything is known of the plane.
func (s *State) Recorded() bool { return s.Map != nil || s.Intent != nil || s.Reserved != 0 }

// Recovered is where the next controller starts. A plane in service is at the epoch that ranks
// know, or at the one that its intent leads to: nothing else advances it. One that had failed may
// have been restored since, more than once, without anybody waiting for a write.
func (s *State) Recovered() controller.Recovered {
	r := controller.Recovered{Epoch: s.Epoch, Map: s.Map, Intent: s.Intent, Failed: s.Failed, Disabled: s.Disabled}
	if s.Intent != nil {
		r.Epoch = max(r.Epoch, s.Intent.Epoch+1)
		if r.Map == nil { // all that is known is where it was to go
			r.Map = circuit.AllDark(len(s.Intent.To))
		}
	}
	if s.Failed {
		r.Epoch = max(r.Epoch, s.Reserved)
	}
	return r
}

// Intend takes a move that may happen from now on.
func (s *State) Intend(i controller.Intent) {
	s.Intent = &i
	s.reserve(i.Epoch)
}

// Apply takes what has happened to the plane, and reports whether that changed the state.
func (s *State) Apply(e *controller.Event) (changed bool) {
	if e.Epoch > s.Epoch {
		s.Epoch, changed = e.Epoch, true
	}
	changed = s.reserve(e.Epoch) || changed
	switch e.Kind {
	case controller.Switched:
		s.moved(e.To)
		if s.Intent != nil && s.Intent.Epoch < e.Epoch {
			s.Intent = nil
		}
		s.Failed = false
		return true
	case controller.Failed:
		changed = changed || !s.Failed
		s.Failed = true
	case controller.Restored:
		// The controller has looked at the plane's map: the intent is settled. Whether an operator has
		// disabled the plane is another matter.
		s.moved(e.To)
		s.Intent, s.Failed = nil, false
		return true
	case controller.Commanded: // Err: why it is disabled
		changed = changed || s.Disabled != e.Err
		s.Disabled = e.Err
	}
	return changed
}

// Baseline takes the state of a plane that has no record, and reports whether it had none.
func (s *State) Baseline(r controller.Recovered) bool {
	if s.Map != nil || r.Map == nil {
		return false
	}
	s.moved(r.Map)
	s.Epoch = max(s.Epoch, r.Epoch)
	s.reserve(r.Epoch)
	return true
}

func (s *State) moved(to circuit.Permutation) {
	if to == nil || to.Equal(s.Map) {
		return
	}
	s.Map = to
	s.Revision++
}

// reserve keeps the mark above epoch. Half a block is left for epochs that are published while
// the mark is being written.
func (s *State) reserve(epoch uint32) bool {
	if s.Reserved > epoch && s.Reserved-epoch > EpochBlock/2 {
		return false
	}
	s.Reserved = epoch + EpochBlock
	return true
}
