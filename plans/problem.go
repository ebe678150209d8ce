package plans

import "lightpath/plans/circuit"

// Version is the version of problem and plan files.
const Version = 1

// Limits of a problem.
const (
	MaxRanks  = 4096
	MaxPlanes = 64
)

// CircuitKind is the kind of permutations that a plane can hold.
type CircuitKind string

// The kinds of planes. Interleaved planes (LumosCore) come in pairs 2j, 2j+1 that hold a
// permutation and its inverse and switch together.
const (
	Simplex     CircuitKind = "simplex"
	Duplex      CircuitKind = "duplex"
	Interleaved CircuitKind = "interleaved"
)

// UnitPlanes returns how many planes switch together.
func (k CircuitKind) UnitPlanes() int {
	if k == Interleaved {
		return 2
	}
	return 1
}

// Problem is the input of a planner: a fabric, and either the steps of a collective or a demand matrix. A decoded
// problem has passed [Problem.Validate].
type Problem struct {
	Version         int
	Ranks           int
	Planes          int
	BandwidthGbps   float64 // per plane, port and direction
	AlphaUS         float64 // per transmit entry
	HopUS           float64 // per hop of the longest flow of an entry
	ReconfigUS      float64
	ReconfigPerPort float64 // us per transmit port that gets a new target
	Forwarding      bool
	Circuits        CircuitKind
	Initial         []circuit.Permutation // nil: chosen by the planner, free
	Final           Final
	Steps           []Step      // exactly one of Steps and Demand
	Demand          [][]float64 // bytes, Ranks x Ranks
}

// Step is one step of a schedule: every flow carries Bytes.
type Step struct {
	Bytes float64
	To    circuit.Permutation // nil where Flows is given
	Flows [][2]int            // {source, destination}; nil where To is given
}

// FlowList returns the flows of s in their canonical order, that of the indexes in a
// plan's "flows": by source for a To step, as listed for a Flows step. A rank that sends
// to itself is no flow.
func (s *Step) FlowList() [][2]int {
	if s.To == nil {
		return s.Flows
	}
	var flows [][2]int
	for r, d := range s.To {
		if d != circuit.Dark && d != r {
			flows = append(flows, [2]int{r, d})
		}
	}
	return flows
}

// FinalKind is the kind of a plan's required final maps.
type FinalKind int

// The final states: anything, back to the initial one, or given maps.
const (
	FinalAny FinalKind = iota
	FinalInitial
	FinalGiven
)

// Final is the required state of the planes after the plan.
type Final struct {
	Kind FinalKind
	Maps []circuit.Permutation // FinalGiven only, one per plane
}

// Busiest returns the most that a port of a demand sends or receives: the largest sum of a row or column.
func Busiest[T int64 | float64](demand [][]T) (most T) {
	for r, row := range demand {
		var sent, received T
		for s := range row {
			sent, received = sent+row[s], received+demand[s][r]
		}
		most = max(most, sent, received)
	}
	return most
}
