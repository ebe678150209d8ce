package lumos

import (
	"fmt"

	"lightpath/plans/lumos/matrix"
)

// Requirement is the number of disjoint paths that jobs need between leaves of different pods: L, symmetric, no row
// above K_leaf. Not safe for concurrent use.
type Requirement struct {
	fabric Fabric
	links  *matrix.Matrix
	sums   []int // by leaf
}

// NewRequirement returns the requirement of no job.
func NewRequirement(f Fabric) (*Requirement, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return &Requirement{fabric: f, links: matrix.New(f.Leaves()), sums: make([]int, f.Leaves())}, nil
}

// requirementOf returns the requirement of a matrix over all leaves, which it keeps. The error names the first invalid
// row.
func requirementOf(f Fabric, links *matrix.Matrix) (*Requirement, error) {
	r, err := NewRequirement(f)
	if err != nil {
		return nil, err
	}
	if links.Size() != f.Leaves() {
		return nil, fmt.Errorf("%w: requirement: %d rows, want one for each of %d leaves", ErrInput, links.Size(), f.Leaves())
	}
	if err := links.NonNegative(); err != nil {
		return nil, fmt.Errorf("%w: requirement%w", ErrInput, err)
	}
	if err := links.Symmetric(); err != nil {
		return nil, fmt.Errorf("%w: requirement%w", ErrInput, err)
	}
	for a := range f.Leaves() {
		for _, c := range links.Row(a) {
			if f.Pod(c.Col) == f.Pod(a) {
				return nil, fmt.Errorf("%w: requirement[%d][%d]: leaves %d and %d are both in pod %d, which needs no circuit",
					ErrInput, a, c.Col, a, c.Col, f.Pod(a))
			}
			if c.Count > f.KLeaf-r.sums[a] {
				return nil, fmt.Errorf("%w: requirement[%d]: leaf %d of pod %d needs more links than k_leaf, %d", ErrInput, a, a,
					f.Pod(a), f.KLeaf)
			}
			r.sums[a] += c.Count
		}
	}
	r.links = links
	return r, nil
}

// Add adds links between leaves a and b, or removes them if links is negative. It changes nothing if the result would
// not be valid.
func (r *Requirement) Add(a, b, links int) error {
	f := r.fabric
	for _, leaf := range []int{a, b} {
		if leaf < 0 || leaf >= f.Leaves() {
			return fmt.Errorf("%w: leaf %d is outside 0..%d", ErrInput, leaf, f.Leaves()-1)
		}
		if links > f.KLeaf-r.sums[leaf] {
			return fmt.Errorf("%w: leaf %d of pod %d needs more links than k_leaf, %d", ErrInput, leaf, f.Pod(leaf), f.KLeaf)
		}
	}
	switch has := r.links.At(a, b); {
	case f.Pod(a) == f.Pod(b):
		return fmt.Errorf("%w: leaves %d and %d are both in pod %d, which needs no circuit", ErrInput, a, b, f.Pod(a))
	case has+links < 0:
		return fmt.Errorf("%w: leaves %d and %d have %d links, %d cannot be taken away", ErrInput, a, b, has, -links)
	}
	r.links.Add(a, b, links)
	r.links.Add(b, a, links)
	r.sums[a] += links
	r.sums[b] += links
	return nil
}

// Fabric returns the fabric whose leaves these are.
func (r *Requirement) Fabric() Fabric { return r.fabric }

// At returns the links between leaves a and b.
func (r *Requirement) At(a, b int) int { return r.links.At(a, b) }

// Sum returns the links of leaf a.
func (r *Requirement) Sum(a int) int { return r.sums[a] }

// Links returns how many links there are, each counted once.
func (r *Requirement) Links() int { return r.links.Total() / 2 }

// Clone returns a copy that shares nothing with r.
func (r *Requirement) Clone() *Requirement {
	return &Requirement{fabric: r.fabric, links: r.links.Clone(), sums: append([]int(nil), r.sums...)}
}
