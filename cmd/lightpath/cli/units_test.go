package cli

import "testing"

// A bare number is in the units of the problem file, so that its fields can be copied.
func TestUnitsOfFlags(t *testing.T) {
	for text, want := range map[string]float64{"200": 200, "200us": 200, "1.5ms": 1500, "0": 0} {
		var m Micros
		if err := m.Set(text); err != nil || float64(m) != want {
			t.Errorf("%s: %v us, %v; want %v", text, m, err, want)
		}
	}
	for text, want := range map[string]float64{"400": 400, "400Gbps": 400, "500Mbps": 0.5} {
		var g Gbps
		if err := g.Set(text); err != nil || float64(g) != want {
			t.Errorf("%s: %v Gb/s, %v; want %v", text, g, err, want)
		}
	}
}
