package place

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Volume is what a GPU sends in each phase of an iteration, as a share of the iteration's time on unshared links.
type Volume [NumPhases]float64

// Pair is the requirement of a job between two leaves of different pods.
type Pair struct {
	A, B  int32 // A < B
	Links int
	// Flows is how many flows cross in one direction, at most, by phase.
	Flows [NumPhases]float64
}

// Requirement is a job's leaf-level network requirement, a row per pair of leaves, by A and B.
type Requirement struct {
	Pairs []Pair
}

// Requirement returns the links that give every flow between pods one of its own. Phases follow each other and use the
// same links (principle 3), each both ways. So a pair of leaves needs the links of the largest phase in its busier
// direction.
func (a *Arrangement) Requirement(shape Shape) *Requirement {
	type key struct{ a, b int32 }
	index := map[key]int{}
	r := &Requirement{}
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
			p.Links = p.need(1, 1)
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

// sums returns the sum of links over the pairs of each leaf that has any.
func (r *Requirement) sums(links func(*Pair) int) map[int32]int {
	sums := map[int32]int{}
	for i := range r.Pairs {
		p := &r.Pairs[i]
		n := links(p)
		sums[p.A] += n
		sums[p.B] += n
	}
	return sums
}

// fit lets flows share links until no leaf has more links than its budget (section A.12). It returns how much longer an
// iteration takes, as a fraction, if each phase takes its share of it; 0 if no flow has to share. A phase lasts as long
// as its slowest flow, so all flows of a phase share alike. It tries all pairs of two numbers: how many flows share a
// link in pipelines, and how many among replicas. Of equal results it takes the one with the fewest links. It fails if
// a leaf has more pairs than links.
func (r *Requirement) fit(budget func(leaf int32) int, shares Volume) (longer float64, err error) {
	var most [NumPhases]int
	for _, p := range r.Pairs {
		for phase, flows := range p.Flows {
			most[phase] = max(most[phase], int(math.Ceil(flows-tolerance)))
		}
	}
	pipeline, replicas, best, fewest := 0, 0, math.Inf(1), 0
	for m := 1; m <= max(1, most[Forward], most[Backward]); m++ {
		for n := 1; n <= max(1, most[Replicas], most[Tokens]); n++ {
			cost := float64(m-1)*(shares[Forward]+shares[Backward]) + float64(n-1)*(shares[Replicas]+shares[Tokens])
			if cost > best {
				break
			}
			if links, ok := r.shared(m, n, budget); ok && (cost < best || links < fewest) {
				pipeline, replicas, best, fewest = m, n, cost, links
			}
		}
	}
	if math.IsInf(best, 1) {
		sums := r.sums(func(*Pair) int { return 1 })
		for _, leaf := range slices.Sorted(maps.Keys(sums)) {
			if sum := sums[leaf]; sum > budget(leaf) {
				return 0, fmt.Errorf("place: leaf %d communicates with %d leaves of other pods and has %d links", leaf, sum,
					budget(leaf))
			}
		}
	}
	for i := range r.Pairs {
		p := &r.Pairs[i]
		p.Links = p.need(pipeline, replicas)
	}
	return best, nil
}

// need returns the links of a pair, on each of which so many flows of a phase go.
func (p *Pair) need(pipeline, replicas int) int {
	links := 1
	for phase, flows := range p.Flows {
		m := replicas
		if Phase(phase) == Forward || Phase(phase) == Backward {
			m = pipeline
		}
		links = max(links, int(math.Ceil(flows/float64(m)-tolerance)))
	}
	return links
}

// shared returns the links of all pairs, and whether they are within the budget.
func (r *Requirement) shared(pipeline, replicas int, budget func(int32) int) (links int, ok bool) {
	need := func(p *Pair) int { return p.need(pipeline, replicas) }
	for i := range r.Pairs {
		links += need(&r.Pairs[i])
	}
	for leaf, sum := range r.sums(need) {
		if sum > budget(leaf) {
			return links, false
		}
	}
	return links, true
}

// tolerance is less than any flow, and above the rounding errors of sums of shares.
const tolerance = 1e-9
