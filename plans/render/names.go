package render

import (
	"fmt"
	"math"
	"strconv"

	"lightpath/plans/circuit"
)

// MapName returns a short name of a plane's map: "xor 2", "shift -1", "dark", with "part of" before it if some ports
// are dark, or a fingerprint such as "#3fa9c2".
func MapName(p circuit.Permutation) string {
	n, first, lit := len(p), -1, 0
	for r, s := range p {
		if s != circuit.Dark {
			if first < 0 {
				first = r
			}
			lit++
		}
	}
	if lit == 0 {
		return "dark"
	}
	name := ""
	if m := first ^ p[first]; agrees(p, func(r int) int { return r ^ m }) {
		name = "xor " + strconv.Itoa(m)
	} else if d := ((p[first]-first)%n + n) % n; agrees(p, func(r int) int { return (r + d) % n }) {
		if d > n/2 {
			d -= n
		}
		name = "shift " + strconv.Itoa(d)
	}
	switch name {
	case "xor 0":
		name = "loops"
	case "":
		return fmt.Sprintf("#%06x", p.Digest()>>40)
	}
	if lit < n && lit < darkest(p, name) {
		name = "part of " + name
	}
	return name
}

// agrees reports whether every circuit of p follows rule.
func agrees(p circuit.Permutation, rule func(r int) int) bool {
	for r, s := range p {
		if s != circuit.Dark && s != rule(r) {
			return false
		}
	}
	return true
}

// darkest counts the circuits that the full map called name has: an xor leaves ports dark
// where the number of ports is no power of two.
func darkest(p circuit.Permutation, name string) int {
	var m int
	if _, err := fmt.Sscanf(name, "xor %d", &m); err != nil {
		return len(p)
	}
	full := 0
	for _, s := range circuit.Xor(len(p), m) {
		if s != circuit.Dark {
			full++
		}
	}
	return full
}

// size writes bytes with a decimal unit: "5 MB".
func size(bytes float64) string {
	for _, unit := range []struct {
		name string
		b    float64
	}{{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}} {
		if math.Abs(bytes) >= unit.b {
			return number(bytes/unit.b) + " " + unit.name
		}
	}
	return number(bytes) + " B"
}

// number writes v with at most four significant digits.
func number(v float64) string {
	if a := math.Abs(v); a >= 1000 && a < 1e15 {
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// unit is a unit of time for an axis.
type unit struct {
	name string
	us   float64
}

// unitFor returns the unit in which span us reads well.
func unitFor(span float64) unit {
	switch {
	case span >= 5e6:
		return unit{"s", 1e6}
	case span >= 5e3:
		return unit{"ms", 1e3}
	case span >= 1:
		return unit{"us", 1}
	}
	return unit{"ns", 1e-3}
}

func (u unit) format(us float64) string { return number(us/u.us) + " " + u.name }
