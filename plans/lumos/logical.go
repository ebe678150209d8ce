package lumos

import (
	"fmt"

	"lightpath/plans/lumos/matrix"
)

// Logical is a logical topology: the spine that carries each link of a requirement, and the links of the core that
// result.
type Logical struct {
	Fabric Fabric
	// Share[h] is L_h, leaves x leaves: the links between leaves a and b that go by the h-th
	// spines of their pods. Symmetric; over all h they sum up to the requirement.
	Share []*matrix.Matrix
	// Core[h] is C_h, pods x pods: the links between the h-th spines of pods i and j. Symmetric,
	// no row above K_spine.
	Core []*matrix.Matrix
}

// newLogical returns the topology without links.
func newLogical(f Fabric) *Logical {
	l := &Logical{Fabric: f, Share: make([]*matrix.Matrix, f.Spines()), Core: make([]*matrix.Matrix, f.Spines())}
	for h := range l.Share {
		l.Share[h], l.Core[h] = matrix.New(f.Leaves()), matrix.New(f.Pods)
	}
	return l
}

// add puts links between leaves a and b on spine h.
func (l *Logical) add(h, a, b, links int) {
	i, j := l.Fabric.Pod(a), l.Fabric.Pod(b)
	l.Share[h].Add(a, b, links)
	l.Share[h].Add(b, a, links)
	l.Core[h].Add(i, j, links)
	l.Core[h].Add(j, i, links)
}

// Contention returns the most links that one leaf has by one spine for each of the tau that
// join them, rounded up: 1 is none.
func (l *Logical) Contention() int {
	worst := 0
	for _, share := range l.Share {
		for a := range share.Size() {
			worst = max(worst, (share.RowSum(a)+l.Fabric.Tau-1)/l.Fabric.Tau)
		}
	}
	return worst
}

// Check reports the first constraint of a logical topology of r that l does not meet: (5) all
// links are carried, (8) both ways alike, (1) and (2) by links that the core can have.
// Contention is no error: see [Logical.Contention].
func (l *Logical) Check(r *Requirement) error {
	f := l.Fabric
	if len(l.Share) != f.Spines() || len(l.Core) != f.Spines() {
		return fmt.Errorf("%d shares and %d cores, want %d of each", len(l.Share), len(l.Core), f.Spines())
	}
	sum := matrix.New(f.Leaves())
	for h, share := range l.Share {
		core := matrix.New(f.Pods)
		for a := range share.Size() {
			for _, c := range share.Row(a) {
				sum.Add(a, c.Col, c.Count)
				core.Add(f.Pod(a), f.Pod(c.Col), c.Count)
			}
		}
		if err := share.NonNegative(); err != nil {
			return fmt.Errorf("spine %d: share%w", h, err)
		}
		if err := core.Symmetric(); err != nil {
			return fmt.Errorf("spine %d: core%w", h, err)
		}
		if !core.Equal(l.Core[h]) {
			return fmt.Errorf("spine %d: the core is not what its share asks for", h)
		}
		for i := range f.Pods {
			if n := core.RowSum(i); n > f.KSpine {
				return fmt.Errorf("spine %d: pod %d has %d links and k_spine is %d", h, i, n, f.KSpine)
			}
		}
	}
	if !sum.Equal(r.links) {
		return fmt.Errorf("the shares of all spines are not the requirement")
	}
	return nil
}
