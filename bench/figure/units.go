package figure

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// Bytes writes a size with a decimal unit: "32 MB".
func Bytes(v float64) string {
	return scaled(v, "B", []prefix{{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}})
}

// Binary writes a size with a binary unit: "32 MiB".
func Binary(v float64) string {
	return scaled(v, "B", []prefix{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}})
}

// Micros writes a time given in us: "200 us", "20 ms".
func Micros(v float64) string {
	if v > 0 && v < 1 {
		return short(v*1e3) + " ns"
	}
	return scaled(v, "us", []prefix{{"s", 1e6}, {"ms", 1e3}})
}

type prefix struct {
	name string
	v    float64
}

func scaled(v float64, base string, units []prefix) string {
	for _, u := range units {
		if math.Abs(v) >= u.v {
			return short(v/u.v) + " " + u.name
		}
	}
	return short(v) + " " + base
}

// short writes v with at most three significant digits. It avoids an exponent if the number is readable without.
func short(v float64) string {
	if a := math.Abs(v); a >= 100 && a < 1e6 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// naming returns the function that writes values: name, or short if it is nil.
func naming(name func(float64) string) func(float64) string {
	if name == nil {
		return short
	}
	return name
}

// named are ticks at given values with given names. At most "most" of them have labels, so that labels do not overlap.
type named struct {
	at   []float64
	name func(float64) string
	most int // labels
}

// Ticks implements plot.Ticker.
func (t named) Ticks(low, high float64) []plot.Tick {
	every := max(1, (len(t.at)+t.most-1)/t.most)
	var ticks []plot.Tick
	for i, v := range t.at {
		if v < low*(1-1e-9) || v > high*(1+1e-9) {
			continue
		}
		label := ""
		if i%every == 0 {
			label = t.name(v)
		}
		ticks = append(ticks, plot.Tick{Value: v, Label: label})
	}
	return ticks
}

// decades are the ticks of a logarithmic axis: 1 to 9 times the powers of ten. A shorter axis labels more of them.
type decades struct{ name func(float64) string }

// labelled reports whether m times a power of ten has a label on an axis of the given length in decades.
func labelled(m int, length float64) bool {
	switch {
	case m == 1 || length < 0.6:
		return true
	case length < 1.3:
		return m <= 4 || m == 6 || m == 8
	case length < 2.5:
		return m == 2 || m == 5
	}
	return false
}

// Ticks implements plot.Ticker.
func (d decades) Ticks(low, high float64) []plot.Tick {
	if low <= 0 || high <= low {
		return nil
	}
	length := math.Log10(high / low)
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for m := 1; m <= 9; m++ {
			v := float64(m) * math.Pow(10, e)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			label := ""
			if labelled(m, length) {
				label = d.name(v)
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// round are the ticks of a linear axis: about five round numbers.
type round struct{ name func(float64) string }

// Ticks implements plot.Ticker.
func (r round) Ticks(low, high float64) []plot.Tick {
	if !(high > low) {
		return nil
	}
	raw := (high - low) / 5
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*step >= raw {
			step *= m
			break
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		v := i*step + 0 // no negative zero
		ticks = append(ticks, plot.Tick{Value: v, Label: r.name(v)})
	}
	return ticks
}
