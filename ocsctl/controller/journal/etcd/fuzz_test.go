package etcd

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/plans/circuit"
)

// spoil overwrites a file with something else of its size.
func spoil(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	junk := make([]byte, min(info.Size(), 1<<20))
	for i := range junk {
		junk[i] = byte(i*7 + 1)
	}
	if err := os.WriteFile(path, junk, 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzPlane: what is taken for the state of a plane is one, and stays the same when it is written.
func FuzzPlane(f *testing.F) {
	for _, s := range []journal.State{
		{Reserved: 1}, {Epoch: 3, Reserved: 9, Revision: 2, Map: circuit.Shift(4, 1), Failed: true, Disabled: "x"},
		{Reserved: 9, Map: circuit.AllDark(2), Intent: &controller.Intent{Plane: 1, Epoch: 3, To: circuit.Shift(2, 1)}},
	} {
		value, err := encodePlane(1, &s, leaderValue{Name: "a"}, 5)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(value))
	}
	f.Add([]byte(`{"version":1,"plane":1,"map":[0,0]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, s, err := decodePlane("/p/"+planeKey(1), data)
		if err != nil {
			return
		}
		if j != 1 || s.Map != nil && s.Map.Validate(len(s.Map)) != nil || s.Epoch >= s.Reserved {
			t.Fatalf("took plane %d: %+v", j, s)
		}
		value, err := encodePlane(j, &s, leaderValue{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := decodePlane(planeKey(1), []byte(value)); err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("%+v became %+v: %v", s, again, err)
		}
	})
}

// FuzzSegment: numbers of events rise, whatever is stored.
func FuzzSegment(f *testing.F) {
	value, err := encode(segmentValue{Version: Format, Events: []controller.Event{
		{Seq: 7, Time: time.Unix(1, 0).UTC(), Kind: controller.Switched, To: circuit.Shift(2, 1)}, {Seq: 9, Kind: controller.Lost, Plane: -1},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(value))
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
