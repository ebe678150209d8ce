package delta

import (
	"encoding/json"
	"fmt"
	"math"
)

// NCT is a normalized communication time: DELTA's metric. It is infinite where the ideal iteration waits for no
// communication and the iteration waits for some. JSON has null then.
type NCT float64

// String returns four decimals, or "none" for an infinite NCT.
func (n NCT) String() string {
	if math.IsInf(float64(n), 1) {
		return "none"
	}
	return fmt.Sprintf("%.4f", float64(n))
}

// MarshalJSON writes the number, or null for an infinite NCT.
func (n NCT) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), 1) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Ideal is an iteration on a non-blocking network, where only NICs limit, shared fairly. Times are in microseconds.
type Ideal struct {
	Makespan float64
	// Communication and LeastCommunication are the time between pods on the critical path. They differ where several
	// paths are critical: the path with the most communication and the path with the least. Both are properties of the
	// job: they do not depend on the order of its tasks.
	Communication, LeastCommunication float64
}

// NCT returns the normalized communication time of a makespan: the makespan without the work on the ideal iteration's
// critical path, over the communication of that path. This is DELTA's metric if the critical path does the same work
// on both networks. Of several critical paths the one with the most communication is the reference.
func (i *Ideal) NCT(makespan float64) NCT { return i.over(makespan, i.Communication) }

// NCTOfLeast is [Ideal.NCT] with the critical path with the least communication as the reference.
func (i *Ideal) NCTOfLeast(makespan float64) NCT { return i.over(makespan, i.LeastCommunication) }

func (i *Ideal) over(makespan, communication float64) NCT {
	switch {
	case communication > equalTimes*i.Makespan:
		return NCT(1 + (makespan-i.Makespan)/communication)
	case makespan <= i.Makespan*(1+equalTimes):
		return 1
	}
	return NCT(math.Inf(1))
}
