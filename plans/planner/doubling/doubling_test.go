package doubling

import (
	"testing"

	"lightpath/plans"
)

// thousand is recursive doubling on 1024 ranks.
func thousand() (*plans.Problem, []Step) {
	p := &plans.Problem{Ranks: 1024, Planes: 2, BandwidthGbps: 400, AlphaUS: 0.5, HopUS: 0.5, ReconfigUS: 10}
	var steps []Step
	for d := range 10 {
		steps = append(steps, Step{Log2: d, Bytes: 1e6 / float64(int(1)<<d)})
	}
	return p, steps
}

func TestSynthesizeDoesNotAllocate(t *testing.T) {
	p, steps := thousand()
	if n := testing.AllocsPerRun(100, func() { Synthesize(p, steps) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSynthesize1024(b *testing.B) {
	p, steps := thousand()
	for b.Loop() {
		Synthesize(p, steps)
	}
}
