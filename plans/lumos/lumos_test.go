package lumos

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/circuit"
	"lightpath/plans/lumos/matrix"
)

// randomFabric is a small one.
func randomFabric(rng *rand.Rand, tau int) Fabric {
	pods := 2 + rng.IntN(5)
	return Fabric{Pods: pods, KLeaf: 2 * (1 + rng.IntN(6)), KSpine: 2 * (1 + rng.IntN(5)), Tau: tau,
		KOCS: pods + rng.IntN(4)}
}

// randomRequirement has row sums up to most, and many that reach it where tries is large.
func randomRequirement(t testing.TB, rng *rand.Rand, f Fabric, most, tries int) *Requirement {
	t.Helper()
	r, err := NewRequirement(f)
	require.NoError(t, err)
	for range tries {
		a, b := rng.IntN(f.Leaves()), rng.IntN(f.Leaves())
		if n := min(most-r.Sum(a), most-r.Sum(b), 1+rng.IntN(3)); f.Pod(a) != f.Pod(b) && n > 0 {
			require.NoError(t, r.Add(a, b, n))
		}
	}
	return r
}

// load sends every link of the requirement over the cluster, cable by cable. It returns the most links on one cable
// between leaf and spine, and on one between pods. It knows ports and the wiring's rules, not how topologies are made.
func load(l *Logical, c *Configuration, r *Requirement) (leafSpine, core int, err error) {
	f := l.Fabric
	type line struct{ a, b, h int } // of leaf and spine, or of pods
	up, between, carried := map[line]int{}, map[line]int{}, matrix.New(f.Leaves())
	for h, share := range l.Share {
		for a := range share.Size() {
			for _, cell := range share.Row(a) {
				up[line{a, 0, h}] += cell.Count
				between[line{a / f.leavesPerPod(), cell.Col / f.leavesPerPod(), h}] += cell.Count
				carried.Add(a, cell.Col, cell.Count)
			}
		}
	}
	if !carried.Equal(r.links) {
		return 0, 0, fmt.Errorf("the links carried are not those required")
	}
	circuits := map[line]int{}
	for h := range f.Spines() {
		for i := range f.Pods {
			for port := range f.KSpine {
				j, far, err := follow(c, h, i, port)
				if err != nil {
					return 0, 0, err
				}
				if j == circuit.Dark {
					continue
				}
				// The way back must end where the way there began.
				if back, p, _ := follow(c, h, j, far); back != i || p != port {
					return 0, 0, fmt.Errorf("group %d: port %d of pod %d sends to port %d of pod %d, whose light goes to port "+
						"%d of pod %d", h, port, i, far, j, p, back)
				}
				circuits[line{i, j, h}]++
			}
		}
	}
	for _, n := range up {
		leafSpine = max(leafSpine, (n+f.Tau-1)/f.Tau)
	}
	for l, n := range between {
		if circuits[l] == 0 && n > 0 {
			return 0, 0, fmt.Errorf("group %d: no circuit between pods %d and %d for %d links", l.h, l.a, l.b, n)
		}
		if n > 0 {
			core = max(core, (n+circuits[l]-1)/circuits[l])
		}
	}
	return leafSpine, core, nil
}

// follow returns where the egress of a port of spine h of pod i leads, by the rules of interleaved wiring.
func follow(c *Configuration, h, i, port int) (pod, far int, err error) {
	ocs := port // the egress of port k is on OCS k
	m := c.Map(h, ocs)
	if err := m.Validate(c.Fabric.Pods); err != nil {
		return 0, 0, fmt.Errorf("group %d OCS %d: %w", h, ocs, err)
	}
	if m[i] == circuit.Dark {
		return circuit.Dark, 0, nil
	}
	return m[i], port ^ 1, nil // the ingress of port k+1 is on OCS k, that of k on OCS k+1
}

// judge checks a topology and its configuration in every way there is.
func judge(t *testing.T, l *Logical, c *Configuration, r *Requirement, contention int) {
	t.Helper()
	if err := l.Check(r); err != nil {
		t.Fatalf("%+v: %v", l.Fabric, err)
	}
	if err := c.Validate(); err != nil {
		t.Fatalf("%+v: %v", l.Fabric, err)
	}
	leafSpine, core, err := load(l, c, r)
	if err != nil {
		t.Fatalf("%+v: %v", l.Fabric, err)
	}
	if leafSpine > contention || core > 1 {
		t.Fatalf("%+v: contention %d between leaf and spine, want %d; %d between pods", l.Fabric, leafSpine, contention, core)
	}
	if want := l.Contention(); want != leafSpine {
		t.Fatalf("Contention says %d, counted %d", want, leafSpine)
	}
}

// coreOf returns the links between pods that group h of c has.
func coreOf(c *Configuration, h int) *matrix.Matrix {
	m := matrix.New(c.Fabric.Pods)
	for _, p := range c.Even[h] {
		for i, j := range p {
			if j != circuit.Dark {
				m.Add(i, j, 1)
				m.Add(j, i, 1)
			}
		}
	}
	return m
}

// contention is what the theorems promise.
func contention(r *Requirement) int {
	f := r.Fabric()
	if f.Tau == 2 {
		return 1
	}
	for a := range f.Leaves() {
		if r.Sum(a) > f.KLeaf/2 {
			return 2
		}
	}
	return 1
}

func TestTheorems(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for round := range 300 {
		f := randomFabric(rng, 1+round%2)
		most := f.KLeaf
		if round%4 == 0 { // Theorem 4.2
			most = f.KLeaf / 2
		}
		r := randomRequirement(t, rng, f, most, rng.IntN(4*f.Leaves()*f.KLeaf+1))
		core, err := CoreFor(r)
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		l, c := core.Logical(), core.Configuration()
		judge(t, l, c, r, contention(r))
		for h := range l.Core {
			if !coreOf(c, h).Equal(l.Core[h]) {
				t.Fatalf("%+v: group %d has %v, want %v", f, h, coreOf(c, h), l.Core[h])
			}
		}
	}
}

// TestAnyCoreIsWired is Theorem 3.1: every symmetric C with rows up to K_spine.
func TestAnyCoreIsWired(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 200 {
		f := randomFabric(rng, 2)
		l := newLogical(f)
		for h := range l.Core {
			for range rng.IntN(3 * f.Pods * f.KSpine) {
				i, j := rng.IntN(f.Pods), rng.IntN(f.Pods)
				if i != j && l.Core[h].RowSum(i) < f.KSpine && l.Core[h].RowSum(j) < f.KSpine {
					l.Core[h].Add(i, j, 1)
					l.Core[h].Add(j, i, 1)
				}
			}
		}
		c := NewConfiguration(f)
		for h, core := range l.Core {
			slots, err := realize(f, core)
			require.NoError(t, err)
			for k := range c.Even[h] {
				c.Even[h][k] = slots.Links(k)
			}
		}
		require.NoError(t, c.Validate())
		for h := range l.Core {
			if !coreOf(c, h).Equal(l.Core[h]) {
				t.Fatalf("%+v: group %d has %v, want %v", f, h, coreOf(c, h), l.Core[h])
			}
		}
	}
}

func TestCoreFollows(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	made, needed := 0, 0
	for round := range 120 {
		f := randomFabric(rng, 1+round%2)
		core, err := NewCore(f)
		require.NoError(t, err)
		for range 6 {
			most := f.KLeaf
			if round%4 == 0 {
				most = f.KLeaf / 2
			}
			r := randomRequirement(t, rng, f, most, rng.IntN(4*f.Leaves()*f.KLeaf+1))
			change, err := core.Update(r, rng.IntN(2) == 0)
			require.NoError(t, err)
			if change.Made < change.Needed || change.Made > change.Links {
				t.Fatalf("%+v: %+v", f, change)
			}
			made, needed = made+change.Made, needed+change.Needed
			judge(t, core.Logical(), core.Configuration(), r, contention(r))
			// The same again moves nothing.
			if change, err = core.Update(r, false); err != nil || change.Made != 0 || change.Removed != 0 {
				t.Fatalf("%+v: the same requirement again: %+v, %v", f, change, err)
			}
		}
	}
	t.Logf("%d links made where %d were missing", made, needed)
}
