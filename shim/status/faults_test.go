package status

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestVerdict: what several ranks see of one fault names the plane and rank at fault once, before ranks that only wait.
func TestVerdict(t *testing.T) {
	var never time.Time
	const silent, carrier = "no answer from its host", "interface e1 has no carrier"
	controller := func(second int) Fault {
		return Fault{Controller, -1, "the controller at unix:/c has not answered",
			time.Date(2026, 1, 1, 12, 0, second, 0, time.Local)}
	}
	for _, c := range []struct {
		name string
		seen map[int][]Fault
		want string
	}{
		{"none", nil, ""},
		{"interface", map[int][]Fault{2: {{1, -1, carrier, never}}}, "plane 1 of rank 2 (h): interface e1 has no carrier"},
		{"interface explains connections", map[int][]Fault{0: {{1, 2, silent, never}},
			2: {{1, -1, carrier, never}, {1, 0, silent, never}, {1, 1, silent, never}}},
			"plane 1 of rank 2 (h): interface e1 has no carrier"},
		{"one rank of four", map[int][]Fault{0: {{1, 2, silent, never}}, 1: {{1, 2, silent, never}},
			2: {{1, 0, silent, never}, {1, 3, silent, never}}},
			"plane 1 of rank 2 (h): no answer from its host, between it and ranks 0-1, 3"},
		{"two ranks", map[int][]Fault{0: {{1, 2, silent, never}}}, "plane 1 between ranks 0, 2: no answer from its host"},
		{"switch", map[int][]Fault{0: {{0, 1, silent, never}, {0, 2, silent, never}}, 1: {{0, 2, silent, never}}},
			"plane 0 between ranks 0-2: no answer from its host"},
		{"controller", map[int][]Fault{0: {controller(1)}, 1: {controller(0)}},
			"the controller at unix:/c has not answered since 12:00:00 (ranks 0-1)"},
		{"order", map[int][]Fault{0: {{0, 1, silent, never}, controller(0)}, 3: {{1, -1, carrier, never}}},
			"plane 1 of rank 3 (h): interface e1 has no carrier; the controller at unix:/c has not answered since " +
				"12:00:00 (rank 0); " +
				"plane 0 between ranks 0-1: no answer from its host"},
	} {
		if got := Verdict(c.seen, func(r int) string { return fmt.Sprintf("rank %d (h)", r) }); got != c.want {
			t.Errorf("%s: %q\nwant %q", c.name, got, c.want)
		}
	}
	many := map[int][]Fault{}
	for r := range maxFaults + 2 {
		many[r] = []Fault{{1, -1, carrier, never}}
	}
	if got := Verdict(many, func(int) string { return "r" }); !strings.HasSuffix(got, "; 2 more faults") {
		t.Errorf("many: %q", got)
	}
}

// TestDiagnoseFault: a plane with a fault stands before ranks that wait for each other.
func TestDiagnoseFault(t *testing.T) {
	comm := Comm{Size: 2, Ranks: []Rank{in(0, "AllReduce", 42, 1), in(1, "AllReduce", 42, 0)}}
	comm.Ranks[1].Faults = []Fault{{Plane: 1, Peer: -1, Seen: "interface e1 has no carrier"}}
	diagnose(&comm)
	want := "plane 1 of rank 1 (h, process 101): interface e1 has no carrier; in AllReduce #42"
	if comm.State != Waiting || !strings.HasPrefix(comm.Diagnosis, want) {
		t.Errorf("%s: %q", comm.State, comm.Diagnosis)
	}
}
