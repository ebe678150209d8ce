package journal

import (
	"maps"
	"slices"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// EpochBlock is how many epochs a plane reserves at a time. The reserved mark is durable before the plane publishes an
// epoch below it, so a plane waits for the journal only for an intent.
const EpochBlock = 1024

// State is the journal's state of one plane. Intents and events update it, and a store writes it as a whole. The zero
// value is a plane without a record. Maps and slices are shared, and never changed in place.
type State struct {
	controller.Recovered        // Epoch is the newest one that is known to be published
	Reserved             uint32 `json:"reserved"` // above every published epoch
	Revision             uint64 `json:"revision"` // number of changes of Map
}

// Recorded reports whether the plane has a record.
func (s *State) Recorded() bool { return s.Map != nil || s.Intent != nil || s.Reserved != 0 }

// Next returns the state from which the next controller starts. A plane in service is at the recorded epoch or at
// the one after its intent, since only intents advance it. A failed plane may have been restored several times since,
// and a restore does not wait for a write: it starts at the reserved mark. Epochs of ports are those before the intent.
func (s *State) Next() controller.Recovered {
	r := s.Recovered
	if s.Intent != nil {
		r.Epoch = max(r.Epoch, s.Intent.Epoch+1)
		if r.Map == nil { // only the target of the intent is known
			r.Map = circuit.AllDark(len(s.Intent.To))
		}
	}
	if s.Failed {
		r.Epoch, r.Epochs = max(r.Epoch, s.Reserved), nil
	}
	return r
}

// Intend records a move that may start from now on.
func (s *State) Intend(i controller.Intent) {
	s.Intent = &i
	s.reach(i.Epoch)
	s.reserve(i.Epoch)
}

// reach notes an epoch of the plane. Only a move gives ports epochs of their own.
func (s *State) reach(epoch uint32) bool {
	if epoch <= s.Epoch {
		return false
	}
	s.Epoch, s.Epochs = epoch, nil
	return true
}

// Apply updates the state with an event of the plane, and reports whether that changed it.
func (s *State) Apply(e *controller.Event) (changed bool) {
	changed = s.reach(e.Epoch)
	changed = s.reserve(e.Epoch) || changed
	switch e.Kind {
	case controller.Switched:
		s.moved(e.To)
		s.Epochs = e.Epochs
		if s.Intent != nil && s.Intent.Epoch < e.Epoch {
			s.Intent = nil
		}
		s.Failed = false
		return true
	case controller.Failed:
		// The move of the intent has ended, or its end is unknown. Only the desired map brings the plane back.
		changed = s.moved(e.Desired) || changed || !s.Failed || s.Intent != nil
		s.Intent, s.Failed, s.Epochs = nil, true, nil
	case controller.Restored:
		// The controller has read the plane's map, so the intent has no more meaning. A disabled plane stays so.
		s.moved(e.To)
		s.Intent, s.Failed, s.Epochs = nil, false, nil
		return true
	case controller.Began, controller.Ended:
		if e.Job == nil {
			break
		}
		jobs := slices.DeleteFunc(slices.Clone(s.Jobs), func(j controller.Job) bool { return j.ID == e.Job.ID })
		if e.Kind == controller.Began {
			jobs = append(jobs, *e.Job)
		}
		s.Jobs, changed = jobs, true
	case controller.Measured:
		s.Baselines, changed = with(s.Baselines, e.Baselines), true
	case controller.Remapped:
		if e.Moved == nil {
			break
		}
		s.Moved, changed = with(s.Moved, map[int]controller.Moved{e.Port: *e.Moved}), true
		s.Baselines = maps.Clone(s.Baselines)
		delete(s.Baselines, e.Port)
	case controller.Excluded, controller.Included:
		if _, was := s.FailedMoves[e.Port]; !was && !e.FailedMove {
			break
		}
		s.FailedMoves, changed = with(s.FailedMoves, map[int]string{e.Port: e.Err}), true
		if !e.FailedMove {
			delete(s.FailedMoves, e.Port)
		}
	case controller.Commanded: // Err: why it is disabled
		changed = changed || s.Disabled != e.Err || s.Trial != e.Trial
		s.Disabled = e.Err
		s.Trial = e.Trial
	}
	return changed
}

// with returns a copy of a map with more entries.
func with[V any](m, more map[int]V) map[int]V {
	all := make(map[int]V, len(m)+len(more))
	maps.Copy(all, m)
	maps.Copy(all, more)
	return all
}

// Baseline sets the state of a plane without a map, and reports whether it did.
func (s *State) Baseline(r controller.Recovered) bool {
	if s.Map != nil || r.Map == nil {
		return false
	}
	s.moved(r.Map)
	s.reach(r.Epoch)
	s.reserve(r.Epoch)
	return true
}

// moved sets the map, unless it is not known, and reports whether that changed it.
func (s *State) moved(to circuit.Permutation) bool {
	if to == nil || to.Equal(s.Map) {
		return false
	}
	s.Map = to
	s.Revision++
	return true
}

// reserve keeps the reserved mark at least half a block above epoch: a plane may publish epochs while a store writes
// the new mark.
func (s *State) reserve(epoch uint32) bool {
	if s.Reserved > epoch && s.Reserved-epoch > EpochBlock/2 {
		return false
	}
	s.Reserved = epoch + EpochBlock
	return true
}
