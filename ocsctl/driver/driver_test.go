package driver_test

import (
	"encoding/json"
	"slices"
	"testing"

	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

func TestDelta(t *testing.T) {
	before := circuit.Permutation{1, 0, 3, circuit.Dark, 4}
	after := circuit.Permutation{1, 2, circuit.Dark, 0, 4}
	remove, add := driver.Delta(before, after)
	wantRemove := []circuit.Pair{{From: 1, To: 0}, {From: 2, To: 3}}
	wantAdd := []circuit.Pair{{From: 1, To: 2}, {From: 3, To: 0}}
	if len(remove) != 2 || len(add) != 2 || remove[0] != wantRemove[0] || remove[1] != wantRemove[1] ||
		add[0] != wantAdd[0] || add[1] != wantAdd[1] {
		t.Fatalf("remove %v, add %v", remove, add)
	}
	if remove, add = driver.Delta(after, after); remove != nil || add != nil {
		t.Fatalf("nothing changes, yet remove %v, add %v", remove, add)
	}
}

func TestLevelNames(t *testing.T) {
	text, err := json.Marshal([]driver.Level{driver.Unverified, driver.Token, 9})
	if err != nil || string(text) != `["unverified","token","level(9)"]` {
		t.Fatal(string(text), err)
	}
	var back []driver.Level
	if err := json.Unmarshal([]byte(`["unverified","token"]`), &back); err != nil || back[1] != driver.Token {
		t.Fatal(back, err)
	}
	if err := json.Unmarshal([]byte(`["level(9)"]`), &back); err == nil {
		t.Fatal("reads a level that there is not")
	}
}

func TestParsePorts(t *testing.T) {
	for _, c := range []struct {
		labels  []string
		in, out []string
		ok      bool
	}{
		{[]string{"1", "2"}, []string{"1", "2"}, nil, true},
		{[]string{"1/5", "2A/6B"}, []string{"1", "2A"}, []string{"5", "6B"}, true},
		{[]string{"1/5", "2"}, nil, nil, false},
		{[]string{"1", "2/6"}, nil, nil, false},
		{nil, nil, nil, true},
	} {
		p, err := driver.ParsePorts(c.labels)
		if (err == nil) != c.ok || c.ok && (!slices.Equal(p.In, c.in) || !slices.Equal(p.Out, c.out) ||
			(p.Out == nil) != (c.out == nil)) {
			t.Errorf("%v: %+v, %v", c.labels, p, err)
		}
	}
}
