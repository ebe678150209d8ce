package controller_test

import (
	"testing"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// TestReadHistory: more events than one answer of a journal has.
func TestReadHistory(t *testing.T) {
	const events = 2*journal.MaxEvents + 10
	store := journal.NewMemory("test", events)
	rule, err := store.Campaign(t.Context())
	require.NoError(t, err)
	for range events {
		rule.Record(controller.Event{Plane: -1}, nil)
	}
	for _, limit := range []int{1, journal.MaxEvents, journal.MaxEvents + 1, events, events + 1} {
		q := controller.AllEvents()
		q.Limit = limit
		got, err := controller.ReadHistory(t.Context(), store.History, q)
		if err != nil || len(got) != min(limit, events) {
			t.Fatalf("limit %d: %d events, %v", limit, len(got), err)
		}
		for i := range got {
			if got[i].Seq != uint64(events-i) {
				t.Fatalf("limit %d: event %d is %d", limit, i, got[i].Seq)
			}
		}
	}
}
