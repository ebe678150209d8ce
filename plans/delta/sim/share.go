package sim

import (
	"math"

	"lightpath/plans/delta/dag"
)

// sharer divides bandwidth: max-min fair per flow among the transfers of one class, class by
// class. Resources are directed links, then classes of NIC ends. A flow takes one unit of
// each NIC that it uses, all flows of a transfer together take their number of the link.
type sharer struct {
	w        *Network
	capacity []float64 // by resource, in this run
	left     []float64 // capacity not yet given away
	weight   []float64 // flows of the class that have no rate yet, on this resource
	touched  []int32   // resources that the active transfers use
	isIn     []bool    // by resource: in touched
	todo     []int32   // transfers of the class without a rate
}

func newSharer(w *Network) sharer {
	n := 2*len(w.g.Links) + w.ends
	return sharer{w: w, capacity: make([]float64, n), left: make([]float64, n), weight: make([]float64, n),
		isIn: make([]bool, n)}
}

func (s *sharer) setCircuits(c dag.Circuits) {
	for r := range s.capacity {
		l := r / 2
		switch {
		case l >= len(s.w.g.Links):
			s.capacity[r] = s.w.perNIC
		case c == nil:
			s.capacity[r] = math.Inf(1)
		default:
			s.capacity[r] = float64(c[l]) * s.w.perNIC
		}
	}
}

// assign sets the rate of every active transfer. They come in order of class.
func (s *sharer) assign(active []int32, class, rate []float64) {
	for _, i := range active {
		s.touch(s.w.link[i])
		for _, n := range s.w.nics[i] {
			s.touch(s.nic(n))
		}
	}
	for k := 0; k < len(active); {
		end := len(active)
		if class != nil {
			for end = k + 1; end < len(active) && class[active[end]] == class[active[k]]; end++ {
			}
		}
		s.fill(active[k:end], rate)
		k = end
	}
	for _, r := range s.touched {
		s.isIn[r] = false
	}
	s.touched = s.touched[:0]
}

func (s *sharer) nic(class int32) int32 { return int32(2*len(s.w.g.Links)) + class }

func (s *sharer) touch(r int32) {
	if !s.isIn[r] {
		s.isIn[r] = true
		s.left[r] = s.capacity[r]
		s.weight[r] = 0
		s.touched = append(s.touched, r)
	}
}

// fill sets the rates of one class by progressive filling: all rates grow alike. When a resource is full, its transfers
// keep their rates.
func (s *sharer) fill(class []int32, rate []float64) {
	w := s.w
	s.todo = append(s.todo[:0], class...)
	for _, i := range class {
		s.weight[w.link[i]] += w.flows[i]
		for _, n := range w.nics[i] {
			s.weight[s.nic(n)]++
		}
	}
	for len(s.todo) > 0 {
		level := w.perNIC // a flow's own NICs
		for _, r := range s.touched {
			if s.weight[r] > 0 {
				level = min(level, s.left[r]/s.weight[r])
			}
		}
		kept := s.todo[:0]
		for _, i := range s.todo {
			if level < w.perNIC && !s.full(i, level) {
				kept = append(kept, i)
				continue
			}
			rate[i] = level
			s.take(i, level)
		}
		s.todo = kept
	}
}

// fullTolerance is the unused part of a resource that still counts as full, because of rounding.
const fullTolerance = 1e-12

// full reports whether some resource of transfer i allows no more than level per flow.
func (s *sharer) full(i int32, level float64) bool {
	limit := level * (1 + 1e-9)
	if l := s.w.link[i]; s.left[l] <= limit*s.weight[l] {
		return true
	}
	for _, n := range s.w.nics[i] {
		if r := s.nic(n); s.left[r] <= limit*s.weight[r] {
			return true
		}
	}
	return false
}

// take gives transfer i the rate level per flow.
func (s *sharer) take(i int32, level float64) {
	use := func(r int32, flows float64) {
		s.weight[r] -= flows
		if s.left[r] -= flows * level; s.left[r] < fullTolerance*s.capacity[r] {
			s.left[r] = 0
		}
	}
	use(s.w.link[i], s.w.flows[i])
	for _, n := range s.w.nics[i] {
		use(s.nic(n), 1)
	}
}
