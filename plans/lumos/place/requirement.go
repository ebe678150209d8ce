package place

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
)

// Volume is what a GPU sends in each phase of an iteration, in units of the caller's choice.
type Volume [NumPhases]float64

// Pair is what a job needs between two leaves of different pods.
type Pair struct {
	A, B  int32 // A < B
	Links int
	// Load is the most that crosses in one direction in a phase: a GPU's volume times flows.
	Load float64
	// Flows is how many flows cross in one direction, at most, by phase.
	Flows [NumPhases]float64
}

// Requirement is a job's leaf-level network requirement, a row per pair of leaves, by A and B.
type Requirement struct {
	Shape Shape
	Pairs []Pair
}

// Requirement returns the links that give every flow between pods one of its own. Phases follow each
// other and use the same links (principle 3), each both ways, so a pair of leaves needs what the
// largest phase needs in its busier direction.
func (a *Arrangement) Requirement(shape Shape, bytes Volume) *Requirement {
	type key struct{ a, b int32 }
	index := map[key]int{}
	r := &Requirement{Shape: shape}
	var flows []Flow
	var back []float64 // from B to A, by pair, where Flows counts A to B
	for phase := range NumPhases {
		flows = a.Flows(shape, phase, flows[:0])
		back = slices.Repeat([]float64{0}, len(r.Pairs))
		for _, f := range flows {
			from, to := f.From/int32(shape.ServerGPUs), f.To/int32(shape.ServerGPUs)
			if shape.Of(Pod, from) == shape.Of(Pod, to) {
				continue
			}
			k := key{int32(shape.Of(Leaf, from)), int32(shape.Of(Leaf, to))}
			forth := k.a < k.b
			if !forth {
				k.a, k.b = k.b, k.a
			}
			i, ok := index[k]
			if !ok {
				i = len(r.Pairs)
				index[k] = i
				r.Pairs = append(r.Pairs, Pair{A: k.a, B: k.b})
				back = append(back, 0)
			}
			if forth {
				r.Pairs[i].Flows[phase] += f.Share
			} else {
				back[i] += f.Share
			}
		}
		for i := range r.Pairs {
			p := &r.Pairs[i]
			p.Flows[phase] = max(p.Flows[phase], back[i])
			p.Links = max(p.Links, int(math.Ceil(p.Flows[phase]-1e-9)))
			p.Load = max(p.Load, p.Flows[phase]*bytes[phase])
		}
	}
	slices.SortFunc(r.Pairs, func(a, b Pair) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
	return r
}

// Links returns the links of all pairs.
func (r *Requirement) Links() int {
	sum := 0
	for _, p := range r.Pairs {
		sum += p.Links
	}
	return sum
}

func (r *Requirement) crossing() float64 {
	sum := 0.0
	for _, p := range r.Pairs {
		sum += p.Load
	}
	return sum
}

// Sums returns the links of each leaf that has any.
func (r *Requirement) Sums() map[int32]int {
	sums := map[int32]int{}
	for _, p := range r.Pairs {
		sums[p.A] += p.Links
		sums[p.B] += p.Links
	}
	return sums
}

// Fit lets flows share links until no leaf has more of them than the budget says (section A.12). Every pair
// keeps one; the others go, one by one, to the pair whose links are loaded most, which keeps the light
// traffic of pipelines on few links and the heavy traffic on many. It fails if a leaf has more
// pairs than links.
func (r *Requirement) Fit(budget func(leaf int32) int) error {
	left := map[int32]int{}
	for leaf, sum := range r.Sums() {
		left[leaf] = budget(leaf) - sum
	}
	fits := true
	for _, n := range left {
		fits = fits && n >= 0
	}
	if fits {
		return nil
	}
	for leaf := range left {
		left[leaf] = budget(leaf)
	}
	h := make(loadHeap, 0, len(r.Pairs))
	want := make([]int, len(r.Pairs))
	for i := range r.Pairs {
		p := &r.Pairs[i]
		want[i], p.Links = p.Links, 1
		left[p.A]--
		left[p.B]--
		h = append(h, loadedPair{p.Load, i})
	}
	for leaf, n := range left {
		if n < 0 {
			return fmt.Errorf("place: leaf %d communicates with %d leaves of other pods and has %d links", leaf, budget(leaf)-n, budget(leaf))
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		i := h[0].pair
		p := &r.Pairs[i]
		if p.Links == want[i] || left[p.A] == 0 || left[p.B] == 0 {
			heap.Pop(&h)
			continue
		}
		p.Links++
		left[p.A]--
		left[p.B]--
		h[0].load = p.Load / float64(p.Links)
		heap.Fix(&h, 0)
	}
	return nil
}

// loadedPair is a pair with what each of its links carries.
type loadedPair struct {
	load float64
	pair int
}

// loadHeap has the most loaded pair on top, and of equals the first.
type loadHeap []loadedPair

func (h loadHeap) Len() int      { return len(h) }
func (h loadHeap) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *loadHeap) Push(x any)   { *h = append(*h, x.(loadedPair)) }
func (h *loadHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (h loadHeap) Less(i, k int) bool {
	return h[i].load > h[k].load || h[i].load == h[k].load && h[i].pair < h[k].pair
}
