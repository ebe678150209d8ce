package figure

import (
	"strings"
	"testing"
)

// TestStaticContention compares the links that three pods need and get with numbers computed by hand.
func TestStaticContention(t *testing.T) {
	for _, c := range []struct {
		need                 staticNeed
		interleaved, uniform int
	}{
		{staticNeed{16, 16, 16}, 1, 2}, // 48 links; 32 OCSes of one pair each
		{staticNeed{10, 11, 11}, 1, 1},
		{staticNeed{10, 11, 12}, 1, 2},
		{staticNeed{32, 0, 0}, 1, 1},
		{staticNeed{32, 32, 0}, 2, 2},
		{staticNeed{32, 1, 0}, 2, 2},
		{staticNeed{0, 0, 0}, 1, 1},
	} {
		if a, b := c.need.interleaved(), c.need.uniform(); a != c.interleaved || b != c.uniform {
			t.Errorf("%v: %d and %d flows share a link, want %d and %d", c.need, a, b, c.interleaved, c.uniform)
		}
	}
}

// TestStaticFigureDraws checks that the static experiment has its picture, with a bar for each model.
func TestStaticFigureDraws(t *testing.T) {
	f := quick(t, "lumoscore", "6a")
	svg, err := f.SVG()
	if err != nil || len(f.Panels) != 2 {
		t.Fatalf("%d panels, %v", len(f.Panels), err)
	}
	for _, want := range []string{"contention", "llama2-13b", "uniform wiring", "flows on the busiest link"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
}

// TestClustersAgree checks that the ideal switch is the fastest, and that the claims follow from the table.
func TestClustersAgree(t *testing.T) {
	f := quick(t, "lumoscore", "8")
	column, contention := map[string]int{}, map[string]float64{}
	for i, name := range f.Table.Columns {
		column[name] = i
	}
	for _, row := range f.Table.values() {
		if v, ok := row[column["jrt_vs_first_pct"]].(float64); !ok || v < 0 {
			t.Errorf("faster than the ideal switch: %v", row)
		}
		v, ok := row[column["contention"]].(float64)
		if !ok || v < 1 {
			t.Errorf("contention below 1: %v", row)
		}
		contention[row[column["fabric"]].(string)] = v
	}
	// Routes that a controller gives beat probing over one more tier.
	if a, b := contention["lumos-1-25.6"], contention["clos-4-25.6"]; a == 0 || a-1 > (b-1)/2 {
		t.Errorf("contention of LumosCore %v, of Clos with the same ports %v", a, b)
	}
	for _, c := range f.Claims {
		if (c.ID == "L6" || c.What == "JCT, the same pair") && c.Ours >= 0 {
			t.Errorf("%v", c)
		}
	}
}
