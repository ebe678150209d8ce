package workload

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func columnSums(d [][]float64) []float64 {
	sums := make([]float64, len(d))
	for _, row := range d {
		for c, v := range row {
			sums[c] += v
		}
	}
	return sums
}

func TestBenchmarkIsASumOfPermutations(t *testing.T) {
	d := Benchmark(100, 16, 0, 7)
	for r, total := range columnSums(d) {
		if math.Abs(total-1) > 1e-12 || math.Abs(sum(d[r])-1) > 1e-12 {
			t.Fatalf("port %d: row %v, column %v", r, sum(d[r]), total)
		}
	}
	large, flows := 0, 0
	for _, row := range d {
		for _, v := range row {
			if v > 0 {
				flows++
			}
			if v >= 0.7/4-1e-12 {
				large++
			}
		}
	}
	if large < 350 || large > 400 || flows < 1400 || flows > 1600 {
		t.Errorf("%d large entries and %d in all; collisions make them a little fewer than 400 and 1600", large, flows)
	}
	noisy := Benchmark(100, 16, 0.003, 7)
	var dev, entries float64
	for r := range d {
		for c := range d {
			if (d[r][c] > 0) != (noisy[r][c] > 0) {
				t.Fatal("noise changed the support")
			}
			if d[r][c] > 0 {
				e := noisy[r][c] - d[r][c]
				dev += e * e
				entries++
			}
		}
	}
	if sigma := math.Sqrt(dev / entries); math.Abs(sigma-0.003) > 0.0003 {
		t.Errorf("noise has a deviation of %v", sigma)
	}
}

func TestGPTIsDoublyStochasticAndSkewed(t *testing.T) {
	o := GPT3B(3)
	o.Sigma = 0
	d := GPT(o)
	if len(d) != 32 {
		t.Fatalf("%d ranks", len(d))
	}
	most := 0.0
	for r, total := range columnSums(d) {
		if math.Abs(total-1) > 1e-6 || math.Abs(sum(d[r])-1) > 1e-6 {
			t.Errorf("rank %d: row %v, column %v", r, sum(d[r]), total)
		}
		support := 0
		for _, v := range d[r] {
			most = math.Max(most, v)
			if v > 0 {
				support++
			}
		}
		if support < 3 || support > 6 {
			t.Errorf("rank %d sends to %d others", r, support)
		}
	}
	if most < 0.4 {
		t.Errorf("largest entry %v: not skewed", most)
	}
}

func TestMoEIsDenseAndUneven(t *testing.T) {
	d := MoE(Qwen2MoE(1))
	busiest := 0.0
	for r, total := range columnSums(d) {
		busiest = math.Max(busiest, math.Max(total, sum(d[r])))
		for c, v := range d[r] {
			if v <= 0 {
				t.Fatalf("nothing from %d to %d", r, c)
			}
		}
	}
	if math.Abs(busiest-1) > 1e-12 {
		t.Errorf("busiest port carries %v", busiest)
	}
	// Rows are alike (each rank sends as many tokens), columns are not.
	if a, b := sum(d[0]), sum(d[63]); math.Abs(a-b) > 1e-12 {
		t.Errorf("rows of %v and %v", a, b)
	}
	low := math.Inf(1)
	for _, total := range columnSums(d) {
		low = math.Min(low, total)
	}
	if low > 0.7 || low < 0.05 {
		t.Errorf("least popular expert gets %v of the most popular one's", low)
	}
}

func TestSeedsDecide(t *testing.T) {
	for name, gen := range map[string]func(seed int64) [][]float64{
		"benchmark": func(s int64) [][]float64 { return Benchmark(20, 5, 0.003, s) },
		"gpt":       func(s int64) [][]float64 { return GPT(GPT3B(s)) },
		"moe":       func(s int64) [][]float64 { return MoE(Qwen2MoE(s)) },
	} {
		if !reflect.DeepEqual(gen(4), gen(4)) {
			t.Errorf("%s: one seed, two matrices", name)
		}
		if reflect.DeepEqual(gen(4), gen(5)) {
			t.Errorf("%s: two seeds, one matrix", name)
		}
	}
}

func TestRead(t *testing.T) {
	d, err := Read(strings.NewReader("# two ports\n\n0 1.5e3\n 2,\t0 \n"))
	if err != nil || !reflect.DeepEqual(d, [][]float64{{0, 1500}, {2, 0}}) {
		t.Fatal(d, err)
	}
	for text, want := range map[string]string{
		"":                 "empty",
		"# only\n":         "empty",
		"1 2\n3\n":         "line 2: 1 entries where the first row has 2",
		"1 2\n\n3 x\n":     "line 3: entry 2: \"x\" is not a number",
		"1 -2\n3 4\n":      "line 1: entry 2: -2 is negative",
		"1 nan\n3 4\n":     "line 1: entry 2: nan is not finite",
		"1 1e999\n3 4\n":   "line 1: entry 2: \"1e999\" is not a number",
		"1 2\n3 4\n5 6\n":  "line 3: row 3 of a matrix with 2 columns",
		"1 2 3\n4 5 6\n\n": "line 3: 2 rows of 3 columns",
	} {
		if _, err := Read(strings.NewReader(text)); !errors.Is(err, ErrMatrix) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"1", "0 1\n2 0\n", "1,2\n#\n3 4", "-1", "1 2\n3", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Read(strings.NewReader(text))
		if err != nil {
			if d != nil {
				t.Fatal("a matrix and an error")
			}
			return
		}
		for _, row := range d {
			if len(row) != len(d) {
				t.Fatalf("%d columns of %d rows", len(row), len(d))
			}
			for _, v := range row {
				if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("entry %v", v)
				}
			}
		}
	})
}
