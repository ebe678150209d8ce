package timing

import (
	"cmp"
	"math"
	"slices"
)

// Lane is a plane in a split: us before its first byte and us per byte.
type Lane struct {
	Plane   int
	Setup   float64
	PerByte float64
}

// fewLanes is the most lanes for which insertion sort is fastest.
const fewLanes = 12

// Split divides bytes over lanes so that they finish together as early as possible: the
// water level T with sum over lanes of (T-setup)+/perByte = bytes. Shares, by lane, go to
// out; a lane whose setup exceeds the level gets 0. It returns T. Lanes must not be empty;
// they are reordered by setup.
func Split(lanes []Lane, bytes float64, out []float64) float64 {
	if len(lanes) > fewLanes {
		slices.SortFunc(lanes, func(a, b Lane) int { return cmp.Or(cmp.Compare(a.Setup, b.Setup), a.Plane-b.Plane) })
	}
	for i := 1; i < len(lanes); i++ { // insertion sort: few lanes, often equal
		for k := i; k > 0 && lanes[k].Setup < lanes[k-1].Setup; k-- {
			lanes[k], lanes[k-1] = lanes[k-1], lanes[k]
		}
	}
	rate, weighted, level, used := 0.0, 0.0, 0.0, 0
	for i, l := range lanes {
		if i > 0 && l.Setup >= level {
			break
		}
		rate += 1 / l.PerByte
		weighted += l.Setup / l.PerByte
		level = (bytes + weighted) / rate
		used = i + 1
	}
	rest := bytes
	for i := range lanes {
		switch {
		case i >= used:
			out[i] = 0
		case i == used-1:
			out[i] = math.Max(0, rest)
		default:
			out[i] = math.Min(rest, math.Max(0, (level-lanes[i].Setup)/lanes[i].PerByte))
			rest -= out[i]
		}
	}
	return level
}
