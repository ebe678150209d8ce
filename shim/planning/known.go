package planning

import (
	"encoding/hex"
	"sync"

	"lightpath/plans"
)

// maxKnown bounds the plans that a rank keeps for tickets to name.
const maxKnown = 1024

// Known holds the plans that tickets may name, by digest. Safe for concurrent use.
type Known struct {
	mu sync.Mutex
	by map[ID]*Agreed
}

// Remember adds a plan.
func (k *Known) Remember(a *Agreed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil || len(k.by) >= maxKnown {
		k.by = map[ID]*Agreed{} // ranks ask again for plans that are still in use
	}
	k.by[a.ID] = a
}

// Lookup returns a plan, nil for one that is not known.
func (k *Known) Lookup(id ID) *Agreed {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.by[id]
}

// Plans returns all plans.
func (k *Known) Plans() (all []*plans.Plan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, a := range k.by {
		if a.Plan != nil && hex.EncodeToString(id[:]) == a.Plan.Digest {
			all = append(all, a.Plan)
		}
	}
	return all
}
