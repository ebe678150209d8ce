package etcd

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/plans/circuit"
)

// spoil overwrites a file with something else of its size.
func spoil(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	junk := make([]byte, min(info.Size(), 1<<20))
	for i := range junk {
		junk[i] = byte(i*7 + 1)
	}
	require.NoError(t, os.WriteFile(path, junk, 0o600))
}

// FuzzSegment: numbers of events rise, whatever is stored.
func FuzzSegment(f *testing.F) {
	value, err := journal.Encode(segmentValue{Version: journal.Format, Events: []controller.Event{
		{Seq: 7, Time: time.Unix(1, 0).UTC(), Kind: controller.Switched, To: circuit.Shift(2, 1)},
		{Seq: 9, Kind: controller.Lost, Plane: -1},
	}})
	require.NoError(f, err)
	f.Add(value)
	f.Add([]byte(`{"version":1,"events":[{"seq":7},{"seq":7}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := decodeSegment("/p/"+segmentKey(7), data)
		if err != nil {
			return
		}
		last := uint64(6)
		for _, e := range events {
			if e.Seq <= last {
				t.Fatalf("number %d after %d", e.Seq, last)
			}
			last = e.Seq
		}
		if _, err := json.Marshal(events); err != nil {
			t.Fatal(err)
		}
	})
}
