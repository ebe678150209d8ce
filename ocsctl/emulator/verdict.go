package emulator

import "fmt"

// Verdict is the fate of a frame.
type Verdict uint8

// The verdicts. All but Delivered are losses, reported to the sending port.
const (
	// Delivered: copied to the receive ring of the port that the map names.
	Delivered Verdict = iota
	// LostDark: sent at a port without a circuit, or in flight when its circuit moved.
	LostDark
	// LostEpoch: tagged with an epoch in which the port had another circuit.
	LostEpoch
	// LostVacant: the circuit leads to a port that no rank has attached to.
	LostVacant
	numVerdicts
)

var verdictNames = [numVerdicts]string{"delivered", "dark circuit", "wrong epoch", "vacant port"}

// String returns the verdict in words.
func (v Verdict) String() string {
	if v < numVerdicts {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}
