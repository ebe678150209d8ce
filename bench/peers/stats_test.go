package peers

import (
	"math"
	"testing"
)

func TestCompareKnownAnswers(t *testing.T) {
	subject := []float64{10, 10, 10, 10, 10}
	slow, fast := []float64{40, 40, 40, 40, 40}, []float64{15, 15, 15, 15, 15}
	ratio, best := compare(subject, [][]float64{slow, fast}, 1)
	if best != 1 || ratio != (Interval{1.5, 1.5, 1.5}) {
		t.Errorf("constant times: peer %d, ratio %v; want the second at exactly 1.5", best, ratio)
	}
}

// A disturbed round moves an end of the interval, but not the median. A round that disturbs both contenders alike moves
// neither.
func TestCompareIsPairedByRound(t *testing.T) {
	subject, peer := []float64{10, 10, 10, 10, 90}, []float64{20, 20, 20, 20, 20}
	if r, _ := compare(subject, [][]float64{peer}, 1); r.Value != 2 || r.Low >= 2 || r.High != 2 {
		t.Errorf("a slow round of the subject: %v; want 2 with a lower low end", r)
	}
	if r, _ := compare(subject, [][]float64{{20, 20, 20, 20, 180}}, 1); r != (Interval{2, 2, 2}) {
		t.Errorf("a slow round of both: %v; want exactly 2", r)
	}
}

// The machine changes between two states, one five times as slow as the other. The rounds still agree.
func TestCompareAcrossStates(t *testing.T) {
	var subject, peer []float64
	for round, state := range []float64{1, 5, 1, 1, 5, 5, 1, 5, 5} {
		subject = append(subject, 10*state)
		peer = append(peer, 12*state+float64(round%3)*0.1)
	}
	peer[2], subject[3] = 5*peer[2], 5*subject[3] // it changes between two samples
	if r, _ := compare(subject, [][]float64{peer}, 1); r.Value < 1.2 || r.Value > 1.22 || r.Low < 1.19 || r.High > 1.23 {
		t.Errorf("%v; want 1.2 to 1.22", r)
	}
}

// If two peers win in turns, the interval covers both.
func TestCompareDoubtsWhoIsBest(t *testing.T) {
	subject := []float64{10, 10, 10, 10, 10}
	a, b := []float64{11, 30, 30, 11, 30}, []float64{30, 12, 12, 30, 12}
	r, best := compare(subject, [][]float64{a, b}, 1)
	if best != 1 || math.Abs(r.Value-1.2) > 1e-12 || math.Abs(r.Low-1.1) > 1e-12 {
		t.Errorf("peer %d, %v; want the second at 1.2 from 1.1", best, r)
	}
}

func TestSummarize(t *testing.T) {
	point := func(ranks int, value, low float64) *Point {
		return &Point{Transport: "shm", Collective: "allreduce", Ranks: ranks, Ratio: &Interval{Value: value, Low: low}}
	}
	points := []*Point{point(2, 1, 0.94), point(2, 4, 3), {Transport: "shm", Collective: "allreduce", Ranks: 2},
		point(4, 16, 0.95)}
	want := []Summary{
		{"shm", "allreduce", 2, 2, 2, 1, 1},
		{"shm", "allreduce", 0, 3, 4, 1, 1},
		{"shm", "allreduce", 4, 1, 16, 16, 0},
	}
	got := summarize(points)
	if len(got) != len(want) {
		t.Fatalf("%d summaries, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		got[i].Geomean = math.Round(got[i].Geomean*1e9) / 1e9
		if got[i] != want[i] {
			t.Errorf("summary %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestChooseIterations(t *testing.T) {
	for _, c := range []struct {
		samples      map[string]sample
		iters, slows int
	}{
		{map[string]sample{"a": {us: 10}, "b": {us: 20}}, 2000, 0},
		{map[string]sample{"a": {us: 1000}, "b": {us: 2000}}, 20, 0},
		{map[string]sample{"a": {us: 1e6}, "b": {us: 2e6}}, 2, 0},
		{map[string]sample{"a": {us: 0.2}, "b": {us: 0.3}}, 100e3, 0},
		{map[string]sample{"a": {us: 0.01}, "b": {us: 0}}, mostIters, 0},
		{map[string]sample{"a": {us: 100}, "b": {us: 1e5}}, 200, 5}, // b cannot have 200 in half a second
	} {
		p := &Point{Contenders: map[string]*Samples{"a": {}, "b": {}}}
		p.chooseIterations(c.samples)
		if p.Iters != c.iters || p.Contenders["b"].Iters != c.slows || p.Contenders["a"].Iters != 0 || p.Warmup < 1 {
			t.Errorf("%v: %d iterations, %d of b; want %d and %d", c.samples, p.Iters, p.Contenders["b"].Iters, c.iters, c.slows)
		}
	}
}

// TestReserve checks that ranks reserve the largest size, or as much as memory allows, with a note.
func TestReserve(t *testing.T) {
	said := 0
	o := &Options{Sizes: []int64{1 << 20, 8}, Progress: func(string, ...any) { said++ }}
	if got := o.reserve(2, 2); got != 1<<20 || said != 0 {
		t.Errorf("%d bytes for 1 MiB, said %d", got, said)
	}
	o.Sizes = []int64{1 << 50}
	if got := o.reserve(2, 2); available() > 0 && (got > available()/4 || got%(1<<20) != 0 || said != 1) {
		t.Errorf("%d bytes for 1 PiB, said %d", got, said)
	}
}
