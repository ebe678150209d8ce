package sampling

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestTurns(t *testing.T) {
	for round, want := range [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}} {
		if got := slices.Collect(Turns(round, 3)); !slices.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
	}
	for range Turns(0, 0) {
		t.Error("a turn of no subject")
	}
	for range Turns(0, 2) {
		break // the iterator ends
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{2, 1}, 1.5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 9, 1, 2}, 3}} {
		before := slices.Clone(c.in)
		if got := Median(c.in); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.in, got, c.want)
		}
		if !slices.Equal(c.in, before) {
			t.Errorf("Median changed %v to %v", before, c.in)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestQuartiles(t *testing.T) {
	if low, high := Quartiles([]float64{5, 1, 4, 2, 3}); low != 2 || high != 4 {
		t.Errorf("quartiles %v and %v, want 2 and 4", low, high)
	}
	if low, high := Quartiles([]float64{7}); low != 7 || high != 7 {
		t.Errorf("quartiles %v and %v of one value, want 7", low, high)
	}
}

func TestPercentiles(t *testing.T) {
	var ns []float64
	for i := range 101 {
		ns = append(ns, float64(1000*i))
	}
	want := Percentiles{50 * time.Microsecond, 90 * time.Microsecond, 99 * time.Microsecond, 100 * time.Microsecond}
	if got := PercentilesOf(ns); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	one := 7 * time.Nanosecond
	if got := PercentilesOf([]float64{7}); got != (Percentiles{one, one, one, one}) {
		t.Errorf("%+v, want 7 ns everywhere", got)
	}
}

func TestHistogram(t *testing.T) {
	got := HistogramOf([]float64{1000, 1100, 1189, 1190, 1500, 2000})
	want := []Bucket{{1189, 3}, {1414, 1}, {1681, 1}, {2000, 0}, {2378, 1}}
	// The third bucket begins at 1189.2: of 1189 and 1190 the first is before it.
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := HistogramOf([]float64{3, 4}); !slices.Equal(got, []Bucket{{1000, 2}}) {
		t.Errorf("%v: times below a microsecond are in the first bucket", got)
	}
	if got := HistogramOf(nil); got != nil {
		t.Errorf("%v of nothing", got)
	}
}
