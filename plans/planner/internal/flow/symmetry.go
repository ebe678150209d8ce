package flow

import "lightpath/plans/circuit"

// symmetry finds, component by component, the renumberings of the ranks that map every plane's circuits onto themselves
// and the flows onto the flows. The image of one rank determines such a renumbering on a component, by following the
// planes. So it fixes no rank unless it fixes all. Its orbits are all of one size, and a route is copied to another
// source by taking the same planes. It finds translations of circulants, tori and all other Cayley graphs, for any
// numbering of the ranks.
type symmetry struct {
	w     *network
	asked *pairs
	image []int32 // rank -> image under the renumbering in the making, -1 unknown or elsewhere
	queue []int32
}

func newSymmetry(w *network) *symmetry {
	s := &symmetry{w: w, asked: newPairs(len(w.dst)), image: make([]int32, len(w.dst))}
	for r, to := range w.dst {
		s.image[r] = -1
		for _, d := range to {
			s.asked.add(int32(r), d)
		}
	}
	return s
}

// orbits sets w.rep for the ranks of one component.
func (s *symmetry) orbits(ranks []int32) {
	const (
		unknown = iota
		inGroup // the image of the first rank under a renumbering that is one
		refused
	)
	state := make(map[int32]int, len(ranks))
	root := ranks[0]
	var generators [][]int32
	state[root] = inGroup
	for _, v := range ranks[1:] {
		if state[v] != unknown {
			continue
		}
		verdict := refused
		reach := v // with v, its whole orbit under what is known is refused
		if s.extend(ranks, root, v) && s.keepsFlows(ranks) {
			generators = append(generators, append([]int32(nil), s.image...))
			verdict, reach = inGroup, root
		}
		for _, u := range spread(reach, generators) {
			state[u] = verdict
		}
	}
	for _, r := range ranks {
		s.w.rep[r], s.image[r] = -1, -1
	}
	for _, r := range ranks {
		if s.w.rep[r] >= 0 {
			continue
		}
		for _, u := range spread(r, generators) {
			s.w.rep[u] = r
		}
	}
}

// spread returns the orbit of r under generators.
func spread(r int32, generators [][]int32) []int32 {
	orbit := []int32{r}
	seen := map[int32]bool{r: true}
	for i := 0; i < len(orbit); i++ {
		for _, g := range generators {
			if u := g[orbit[i]]; !seen[u] {
				seen[u] = true
				orbit = append(orbit, u)
			}
		}
	}
	return orbit
}

// extend tries to complete root -> v to a renumbering of the component that keeps every
// plane's circuits.
func (s *symmetry) extend(ranks []int32, root, v int32) bool {
	for _, r := range ranks {
		s.image[r] = -1
	}
	s.image[root] = v
	s.queue = append(s.queue[:0], root)
	for i := 0; i < len(s.queue); i++ {
		r := s.queue[i]
		for j := range s.w.maps {
			if !s.match(s.w.maps[j], r) || !s.match(s.w.inverse[j], r) {
				return false
			}
		}
	}
	return true
}

// match maps the rank that p joins to r to the one that p joins to the image of r.
func (s *symmetry) match(p circuit.Permutation, r int32) bool {
	a, b := p[r], p[s.image[r]]
	switch {
	case a == circuit.Dark || b == circuit.Dark:
		return a == b
	case s.image[a] < 0:
		s.image[a] = int32(b)
		s.queue = append(s.queue, int32(a))
		return true
	default:
		return int(s.image[a]) == b
	}
}

// keepsFlows reports whether the renumbering maps every flow onto a flow.
func (s *symmetry) keepsFlows(ranks []int32) bool {
	for _, r := range ranks {
		if len(s.w.dst[r]) != len(s.w.dst[s.image[r]]) {
			return false
		}
	}
	for _, r := range ranks {
		for _, d := range s.w.dst[r] {
			if s.image[d] < 0 || !s.asked.has(s.image[r], s.image[d]) {
				return false
			}
		}
	}
	return true
}
