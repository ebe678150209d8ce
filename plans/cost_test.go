package plans

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/plans/circuit"
)

// slowLoad is the definition: follow the circuits, count.
func slowLoad(perm circuit.Permutation, flows [][2]int) (hops, load int, ok bool) {
	crossing := make([]int, len(perm))
	for _, f := range flows {
		h, found := perm.Hops(f[0], f[1])
		if !found {
			return 0, 0, false
		}
		hops = max(hops, h)
		for at := f[0]; at != f[1]; at = perm[at] {
			crossing[at]++
			load = max(load, crossing[at])
		}
	}
	return hops, load, true
}

// randomPermutation leaves about a quarter of the ports dark.
func randomPermutation(rng *rand.Rand, n int) circuit.Permutation {
	p := circuit.Permutation(rng.Perm(n))
	for r := range p {
		if rng.IntN(4) == 0 {
			p[r] = circuit.Dark
		}
	}
	return p
}

func TestLoaderCountsRoutes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var l Loader
	reached := 0
	for range 3000 {
		n := 1 + rng.IntN(12)
		perm := randomPermutation(rng, n)
		if rng.IntN(2) == 0 {
			perm = circuit.Shift(n, rng.IntN(n))
		}
		var flows [][2]int
		for range rng.IntN(2 * n) {
			flows = append(flows, [2]int{rng.IntN(n), rng.IntN(n)})
		}
		wantH, wantL, wantOK := slowLoad(perm, flows)
		l.SetMap(perm)
		h, load, err := l.Load(flows)
		if (err == nil) != wantOK || h != wantH || load != wantL {
			t.Fatalf("perm %v flows %v: got %d %d %v, want %d %d %v", perm, flows, h, load, err, wantH, wantL, wantOK)
		}
		if err != nil && !errors.Is(err, ErrUnreachable) {
			t.Fatalf("error %v is not ErrUnreachable", err)
		}
		if wantOK && wantL > 1 {
			reached++
		}
	}
	if reached < 100 {
		t.Fatalf("only %d cases shared a circuit", reached)
	}
}

func TestLoaderDoesNotAllocate(t *testing.T) {
	var l Loader
	ring, flows := circuit.Shift(64, 1), (&Step{To: circuit.Shift(64, 16)}).FlowList()
	l.SetMap(ring)
	got := testing.AllocsPerRun(100, func() {
		l.SetMap(ring)
		if h, load, bad := l.Measure(flows); h != 16 || load != 16 || bad >= 0 {
			t.Fatal("wrong load")
		}
	})
	if got != 0 {
		t.Fatalf("%v allocations", got)
	}
}

func TestCosts(t *testing.T) {
	p := &Problem{BandwidthGbps: 400, AlphaUS: 20, HopUS: 0.5, ReconfigUS: 200, ReconfigPerPort: 2}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"one hop", TransmitUS(p, 1, 1, 5e6), 20 + 0.5 + 100},
		{"forwarded", TransmitUS(p, 3, 2, 5e6), 20 + 1.5 + 200},
		{"no flows", TransmitUS(p, 0, 0, 5e6), 0},
		{"no bytes", TransmitUS(p, 1, 1, 0), 0},
		{"joint", JointUS(p, 2, 1e7), 20 + 1 + 200},
		{"switch", ReconfigUS(p, circuit.Xor(8, 1), circuit.Xor(8, 2)), 216},
		{"switch nothing", ReconfigUS(p, circuit.Xor(8, 1), circuit.Xor(8, 1)), 200},
		{"ports go dark", ReconfigUS(p, circuit.Xor(8, 1), circuit.AllDark(8)), 200},
		{"ports of circuits that stay", ReconfigUS(p, circuit.Permutation{1, 0, 3, 2},
			circuit.Permutation{-1, 2, 3, 0}), 204},
		{"ports that light up again", ReconfigUS(p, circuit.AllDark(8), circuit.Xor(8, 1)), 216},
		{"wire", WireUS(p, 5e6), 100},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v us, want %v", c.name, c.got, c.want)
		}
	}
}

func TestTolerance(t *testing.T) {
	p := &Problem{BandwidthGbps: 400}
	for _, c := range []struct {
		name      string
		got, want bool
	}{
		{"absolute slack", SameUS(0, 0.9e-6), true},
		{"beyond absolute slack", SameUS(0, 1.1e-6), false},
		{"relative slack", SameUS(1e6, 1e6+0.9e-3), true},
		{"beyond relative slack", SameUS(1e6, 1e6+1.1e-3), false},
		{"later is at least", AtLeastUS(5, 3), true},
		{"earlier is not", AtLeastUS(3, 5), false},
		{"a hair earlier is", AtLeastUS(3-0.5e-6, 3), true},
		{"finite is not at least infinite", AtLeastUS(1e300, math.Inf(1)), false},
		{"finite is not the same as infinite", SameUS(1e300, math.Inf(1)), false},
		{"NaN is not the same", SameUS(math.NaN(), math.NaN()), false},
		{"more than asked", CarriesAll(p, 6, 5), true},
		{"a byte short", CarriesAll(p, 5e6-1, 5e6), false},
		{"rounding", CarriesAll(p, 5e6-1e-3, 5e6), true},
		{"small flow left out", CarriesAll(&Problem{BandwidthGbps: 1e6}, 0, 5), false},
		{"nothing asked", CarriesAll(p, 0, 0), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v", c.name, c.got)
		}
	}
}

func BenchmarkLoader(b *testing.B) {
	var l Loader
	ring, flows := circuit.Shift(64, 1), (&Step{To: circuit.Shift(64, 16)}).FlowList()
	b.ReportAllocs()
	for b.Loop() {
		l.SetMap(ring)
		l.Measure(flows)
	}
}
