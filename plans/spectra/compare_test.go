package spectra

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestCompared: the algorithms that SPECTRA is compared with cover the demand, and the split
// neither loses nor adds any.
func TestCompared(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 2))
	for i, d := range []Matrix{example, benchmark(rng, 30, 8), gpt(rng), zero(4)} {
		for _, delta := range []float64{0, 0.05} {
			covers(t, d, Timetable{Eclipse(d, delta)})
		}
		for _, s := range []int{1, 3, 4} {
			covers(t, d, Baseline(d, s))
			total := zero(len(d))
			for _, part := range split(d, s) {
				for r := range part {
					for c, x := range part[r] {
						total[r][c] += x
					}
				}
			}
			for r := range d {
				for c, x := range d[r] {
					if math.Abs(total[r][c]-x) > 1e-12 {
						t.Fatalf("matrix %d: [%d][%d] is split into %v of %v", i, r, c, total[r][c], x)
					}
				}
			}
		}
	}
}

// TestComparison: on average SPECTRA is ahead of both, as the paper finds.
func TestComparison(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 3))
	var base, eclipse, spectra float64
	for _, gen := range []func() Matrix{func() Matrix {
		return benchmark(rng, 40, 8)
	}, func() Matrix { return gpt(rng) }, func() Matrix { return moe(rng) }} {
		d := gen()
		for _, delta := range []float64{0.03} {
			ours := faithful(d, 4, delta).Makespan(delta)
			b, e := Baseline(d, 4).Makespan(delta), Equalize(Schedule(Eclipse(d, delta), 4, delta), delta).Makespan(delta)
			t.Logf("delta %v: SPECTRA %.4f, ECLIPSE variant x %.2f, BASELINE x %.2f", delta, ours, e/ours, b/ours)
			base, eclipse, spectra = base+b/ours, eclipse+e/ours, spectra+1
		}
	}
	if base <= spectra || eclipse <= spectra {
		t.Errorf("mean ratios: BASELINE %v, ECLIPSE variant %v", base/spectra, eclipse/spectra)
	}
}
