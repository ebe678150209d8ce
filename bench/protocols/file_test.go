package protocols

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestSimulationFile(t *testing.T) {
	for _, s := range []*Simulation{
		{Config: Config{Planes: 3}, Seed: MaxSeed},
		{Choices: []int{0, 4, 0, 1}, Violation: "one-leader"},
		{Choices: []int{}, Config: Config{Faults: FaultNames()}},
	} {
		text, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		want := *s
		want.Config = s.Config.complete()
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestSimulationFileIsStrict(t *testing.T) {
	const good = `{"version": 2, "config": {"planes": 2}, "choices": [0, 3], "violation": "one-leader"}`
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, with, want string }{
		{`"version": 2`, `"version": 3`, "version: 3 is not 2: seeds and choices make other runs in another version"},
		{`"version": 2, `, ``, "version: missing"},
		{`"config": {"planes": 2}, `, ``, "config: missing"},
		{`"planes": 2`, `"planes": 0`, "config.planes: 0 is outside 1..64"},
		{`"planes": 2`, `"ports": 3`, "config.ports: 3 are too few for 2 jobs, which have at least two each"},
		{`"planes": 2`, `"plane": 2`, "config.plane: unknown field"},
		{`"planes": 2`, `"planes": 2, "planes": 3`, `config: field "planes" appears twice`},
		{`"planes": 2`, `"faults": ["fire"]`, `config.faults[0]: there is no fault "fire"`},
		{`[0, 3]`, `[0, -3]`, "choices[1]: -3 is outside 0..2147483647"},
		{`[0, 3]`, `[0, 3.5]`, "choices[1]: 3.5 is not an integer"},
		{`"choices": [0, 3]`, `"seed": -1`, "seed: -1 is outside 0..9007199254740991"},
		{`"choices": [0, 3]`, `"seed": 1, "choices": [0]`, "seed, choices: want one of them"},
		{`"choices": [0, 3], `, ``, "seed, choices: want one of them"},
		{`"one-leader"`, `""`, "violation: want the name of an invariant"},
		{`"violation"`, `"broken"`, "broken: unknown field"},
		{`"one-leader"}`, `"one-leader"} {}`, "line 1 column 88: unexpected text after the value"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%s is not in the file", c.old)
		}
		if _, err := Decode([]byte(strings.Replace(good, c.old, c.with, 1))); err == nil || err.Error() != c.want {
			t.Errorf("%s instead of %s: %v, want %s", c.with, c.old, err, c.want)
		}
	}
}

// FuzzSimulationFile checks that Decode reads the same simulation again after Encode has written it.
func FuzzSimulationFile(f *testing.F) {
	f.Add([]byte(`{"version": 2, "config": {"planes": 2}, "choices": [0, 3], "violation": "one-leader"}`))
	f.Add([]byte(`{"version": 2, "config": {}, "seed": 7}`))
	f.Add([]byte(`{"a\nb": 1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Decode(text)
		if (s == nil) == (err == nil) {
			t.Fatalf("%+v, %v", s, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has more than one line", err)
			}
			return
		}
		first, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(first)
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		if second, err := again.Encode(); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s, then %s, %v", first, second, err)
		}
	})
}
