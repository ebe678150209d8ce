package lumos

import (
	"fmt"

	"lightpath/plans/circuit"
	"lightpath/plans/lumos/decompose"
	"lightpath/plans/lumos/matrix"
	"lightpath/plans/lumos/slots"
)

// assign gives the links of a requirement slots, which are spines of leaves. With tau = 2 there is no contention
// (LumosCore, Theorem 4.1). With tau = 1 there is none if no leaf needs more than K_leaf/2 links (Theorem 4.2).
// Otherwise a leaf has at most 2 links by one spine.
func assign(r *Requirement) (*slots.Table, error) {
	if f := r.Fabric(); f.Tau == 1 {
		if t, ok := greedy(r); ok {
			return t, nil
		}
	}
	return balance(r)
}

// balance is the heuristic decomposition, for any requirement. Halves and parts are balanced over pods, too: a
// spine of a pod gets at most its part of the pod's links, K_spine, even where tau = 1.
func balance(r *Requirement) (*slots.Table, error) {
	f := r.Fabric()
	pods := make([]int, f.Leaves())
	for a := range pods {
		pods[a] = f.Pod(a)
	}
	half, err := decompose.Halve(r.links, pods)
	if err != nil {
		return nil, fmt.Errorf("lumos: %w", err)
	}
	parts, err := decompose.Split(half, f.Spines(), pods)
	if err != nil {
		return nil, fmt.Errorf("lumos: %w", err)
	}
	return tableOf(f.Leaves(), parts), nil
}

// tableOf puts the links of part c into slot c. No row or column of a part may exceed 1.
func tableOf(n int, parts []*matrix.Matrix) *slots.Table {
	t := slots.New(n, len(parts))
	for c, part := range parts {
		for u := range n {
			for _, cell := range part.Row(u) {
				t.Put(u, cell.Col, c)
			}
		}
	}
	return t
}

// greedy gives every link a spine that neither of its leaves uses. It returns false if some link finds none, which
// cannot happen if every leaf needs at most K_leaf/2 links.
func greedy(r *Requirement) (*slots.Table, bool) {
	f := r.Fabric()
	t := slots.New(f.Leaves(), f.Spines())
	vacant := func(a, h int) bool { return t.At(a, h) < 0 && t.From(a, h) < 0 }
	for a := range f.Leaves() {
		for _, cell := range r.links.Row(a) {
			if cell.Col < a {
				continue
			}
			h := 0
			for range cell.Count {
				for h < f.Spines() && (!vacant(a, h) || !vacant(cell.Col, h)) {
					h++
				}
				if h == f.Spines() {
					return nil, false
				}
				t.Put(a, cell.Col, h)
			}
		}
	}
	return t, true
}

// logicalOf returns the topology whose links have the slots of t.
func logicalOf(f Fabric, t *slots.Table) *Logical {
	l := newLogical(f)
	for h := range f.Spines() {
		for a := range f.Leaves() {
			if b := t.At(a, h); b != circuit.Dark {
				l.add(h, a, b, 1)
			}
		}
	}
	return l
}

// realize gives the links of one group slots: pod by pair of OCSes. A core within K_spine can always be wired
// (LumosCore, Theorem 3.1).
func realize(f Fabric, core *matrix.Matrix) (*slots.Table, error) {
	if core.Size() != f.Pods {
		return nil, fmt.Errorf("%d rows, want one for each of %d pods", core.Size(), f.Pods)
	}
	for i := range f.Pods {
		if n := core.RowSum(i); n > f.KSpine {
			return nil, fmt.Errorf("pod %d has %d links and k_spine is %d", i, n, f.KSpine)
		}
		if core.At(i, i) != 0 {
			return nil, fmt.Errorf("pod %d has links to itself", i)
		}
	}
	half, err := decompose.Halve(core, nil)
	if err != nil {
		return nil, err
	}
	parts, err := decompose.Split(half, f.Pairs(), nil)
	if err != nil {
		return nil, err
	}
	return tableOf(f.Pods, parts), nil
}
