package plans

import "lightpath/plans/circuit"

// Kind is the kind of a timeline entry.
type Kind string

// The kinds of entries.
const (
	Transmit    Kind = "transmit"
	Reconfigure Kind = "reconfigure"
	Hold        Kind = "hold"
)

// Plan is the timeline of each plane for a Problem: transmits and reconfigurations with their times.
type Plan struct {
	Version      int
	Planner      string
	CCTUS        float64
	LowerBoundUS float64 // proven; BoundProof says how
	BoundProof   string  // optional field "bound"
	Initial      []circuit.Permutation
	Planes       [][]Entry // per plane, in time order
	Digest       string    // "" where the file carries none
	// Repeats lists, per plane, the entries that repeat, which a compact file states once. It may be nil. A Repeat that
	// does not match the entries is ignored.
	Repeats [][]Repeat
}

// Entry is one activity of one plane.
type Entry struct {
	Kind    Kind
	Step    int                 // Transmit
	Bytes   float64             // Transmit: per flow; absent on joint entries
	Flows   []int               // Transmit: indexes into Step.FlowList; nil = all
	Joint   string              // Transmit: id shared by the entries of one joint transmit
	Routes  []Route             // in the first entry of a joint transmit
	To      circuit.Permutation // Reconfigure, Hold
	StartUS float64
	EndUS   float64
}

// Route is one path of a joint transmit: Path[0] leaves Flow[0], each hop names the plane
// it uses and the rank it reaches; the last rank is Flow[1].
type Route struct {
	Flow  [2]int
	Bytes float64
	Path  [][2]int // {plane, rank}
}
