package bound

import (
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/doubling"
	"lightpath/plans/planner/internal/model"
)

// allMaps lists every permutation of n ports.
func allMaps(n int) []circuit.Permutation {
	var all []circuit.Permutation
	var grow func(p circuit.Permutation, used int)
	grow = func(p circuit.Permutation, used int) {
		if len(p) == n {
			all = append(all, p.Clone())
			return
		}
		for s := range n {
			if used>>s&1 == 0 {
				grow(append(p, s), used|1<<s)
			}
		}
	}
	grow(nil, 0)
	return all
}

// bestSinglePlane is the least CCT of one plane that may hold any permutation and changes
// it between steps only: dynamic programming over all permutations.
func bestSinglePlane(p *plans.Problem, maps []circuit.Permutation) float64 {
	best := make([]float64, len(maps))
	if p.Initial != nil {
		for c := range maps {
			best[c] = p.ReconfigUS
			if maps[c].Equal(p.Initial[0]) {
				best[c] = 0
			}
		}
	}
	for i := range p.Steps {
		st := &p.Steps[i]
		low := math.Inf(1)
		for c, us := range best {
			hops, load, err := plans.Load(maps[c], st.FlowList())
			if err != nil {
				us = math.Inf(1)
			} else {
				us += plans.TransmitUS(p, hops, load, st.Bytes)
			}
			best[c] = us
			low = math.Min(low, us)
		}
		for c := range best {
			if i+1 < len(p.Steps) {
				best[c] = math.Min(best[c], low+p.ReconfigUS)
			} else {
				best[c] = math.Max(best[c], low)
			}
		}
	}
	least := math.Inf(1)
	for _, us := range best {
		least = math.Min(least, us)
	}
	return least
}

func TestForwardBoundUnderEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	tight := 0
	for _, n := range []int{2, 3, 4, 5} {
		maps := allMaps(n)
		for range 120 {
			p := &plans.Problem{
				Version: plans.Version, Ranks: n, Planes: 1, BandwidthGbps: 8, Forwarding: true, Circuits: plans.Simplex,
				AlphaUS: float64(rng.IntN(3)), HopUS: float64(rng.IntN(4)), ReconfigUS: float64(rng.IntN(60)),
			}
			for range 1 + rng.IntN(6) {
				st := plans.Step{Bytes: float64(1000 * (1 + rng.IntN(20))), To: maps[rng.IntN(len(maps))]}
				if rng.IntN(4) == 0 {
					st.To = st.To.Clone()
					st.To[rng.IntN(n)] = circuit.Dark
				}
				p.Steps = append(p.Steps, st)
			}
			switch rng.IntN(3) {
			case 0:
				p.Initial = []circuit.Permutation{maps[rng.IntN(len(maps))]}
			case 1:
				p.Initial = []circuit.Permutation{circuit.AllDark(n)}
			}
			m, err := model.Compile(p)
			require.NoError(t, err)
			b, ok := forwardBound(m, ideals(m))
			if !ok {
				continue // nothing to send
			}
			best := bestSinglePlane(p, maps)
			if b.Total > best+1e-6 {
				t.Fatalf("bound %v above the optimum %v of %+v", b.Total, best, p)
			}
			if b.Total < bandwidthBound(ideals(m)).Total {
				t.Fatal("the bound is below the bandwidth's")
			}
			if b.Total > bandwidthBound(ideals(m)).Total+1e-6 && b.Total > 0.999*best {
				tight++
			}
		}
	}
	if tight < 20 {
		t.Fatalf("only %d bounds are attained and above the bandwidth's", tight)
	}
}

// TestForwardBoundDoubling: on cyclic recursive doubling with a cheap switch the bound meets
// the plan, and with a dear one it stays well above bandwidth.
func TestForwardBoundDoubling(t *testing.T) {
	p := &plans.Problem{
		Version: plans.Version, Ranks: 16, Planes: 1, BandwidthGbps: 400, AlphaUS: 5, HopUS: 0.5, ReconfigUS: 5,
		Forwarding: true, Circuits: plans.Simplex,
	}
	var steps []doubling.Step
	bytes := float64(8 << 20)
	for log := range 4 {
		p.Steps = append(p.Steps, plans.Step{Bytes: bytes, To: circuit.Shift(p.Ranks, 1<<log)})
		steps = append(steps, doubling.Step{Log2: log, Bytes: bytes})
		bytes /= 2
	}
	for _, c := range []struct{ reconfig, gap, over float64 }{{5, 1, 1.02}, {5000, 3, 1.5}} {
		p.ReconfigUS = c.reconfig
		m, err := model.Compile(p)
		require.NoError(t, err)
		b, _ := forwardBound(m, ideals(m))
		us := doubling.Synthesize(p, steps).US
		if us > b.Total*c.gap+1e-6 || b.Total < c.over*bandwidthBound(ideals(m)).Total || b.Total > us+1e-6 {
			t.Errorf("reconfiguration %v us: plan %v, bound %v, bandwidth %v", c.reconfig, us, b.Total,
				bandwidthBound(ideals(m)).Total)
		}
	}
}
