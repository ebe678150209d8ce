package plans

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"testing"

	"github.com/gowebpki/jcs"

	"lightpath/plans/circuit"
)

// TestDigestIsCanonical compares with an independent implementation of RFC 8785, on what the files say.
func TestDigestIsCanonical(t *testing.T) {
	shift := circuit.Shift(4, 1)
	for name, pair := range map[string][2]any{
		"flows, text and numbers": {
			&Problem{Version: 1, Ranks: 4, Planes: 2, BandwidthGbps: 1e-7, ReconfigUS: 1e22, AlphaUS: 5e-324, HopUS: 0.1,
				ReconfigPerPort: 3,
				Circuits:        Simplex, Forwarding: true, Initial: []circuit.Permutation{shift, circuit.AllDark(4)},
				Final: Final{Kind: FinalInitial},
				Steps: []Step{{Bytes: 1, To: shift}, {Bytes: 2.5, Flows: [][2]int{{0, 1}, {0, 2}}}}},
			&Plan{Version: 1, Planner: "a \u20ac\b\"\\/<>&\u2028", BoundProof: "\x00\x1f\U0001f600", CCTUS: 1e21,
				LowerBoundUS: 123456789012345680000,
				Initial:      []circuit.Permutation{shift, circuit.AllDark(4)}, Planes: [][]Entry{
					{{Kind: Transmit, Step: 1, Bytes: 1e-9, Flows: []int{1, 0}, EndUS: 3}, {Kind: Reconfigure, To: shift, StartUS: 3,
						EndUS: 4}},
					{{Kind: Transmit, Joint: "x", Routes: []Route{{Flow: [2]int{0, 1}, Bytes: 7, Path: [][2]int{{0, 1}}}}, EndUS: 3},
						{Kind: Transmit, Joint: "x"}},
				}},
		},
		"a demand, and given final maps": {
			&Problem{Version: 1, Ranks: 2, Planes: 1, BandwidthGbps: 400, Circuits: Duplex,
				Demand: [][]float64{{0, 1.5}, {2e-8, 0}},
				Final:  Final{Kind: FinalGiven, Maps: []circuit.Permutation{{1, 0}}}},
			&Plan{Version: 1, CCTUS: 1, Planes: [][]Entry{{{Kind: Hold, To: circuit.Permutation{1, 0}, EndUS: 1},
				{Kind: Hold, To: circuit.Permutation{1, 0}[:1:1]}}}},
		},
		"nothing": {&Problem{Version: 1, Ranks: 1, Planes: 1, BandwidthGbps: 1, Circuits: Simplex, Steps: []Step{}},
			&Plan{Version: 1}},
	} {
		problem, plan := pair[0].(*Problem), pair[1].(*Plan)
		planText, err := EncodePlan(plan)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		problemText, err := EncodeProblem(problem)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := jcs.Transform([]byte(`{"plan":` + string(planText) + `,"problem":` + string(problemText) + `}`))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sum := sha256.Sum256(text)
		if got, err := Digest(problem, plan); err != nil || got != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: digest %s, %v; want that of %s", name, got, err, text)
		}
	}
}

func TestCanonicalNumbers(t *testing.T) {
	// From RFC 8785, appendix B.
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0", 0x0000000000000001: "5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef50: "1e+21", 0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x3e7ad7f29abcaf48: "1e-7",
	} {
		if got := string(appendCanonicalNumber(nil, math.Float64frombits(bits))); got != want {
			t.Errorf("%016x: %s, want %s", bits, got, want)
		}
	}
}
