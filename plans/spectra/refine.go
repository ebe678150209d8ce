package spectra

import (
	"cmp"
	"math"
	"slices"

	"lightpath/plans/internal/lp"
)

// weigher sets the weights of given permutations on given switches so that the longest switch is as short as possible.
// On one switch that is the paper's linear program (5). It minimizes T subject to T >= overhead(h) + sum of the weights
// on h, and every entry covered. An entry that only one hold covers is a floor of that hold's weight. The program adds
// to these floors.
type weigher struct {
	w     *network
	lp    lp.Program
	unit  float64   // of the program's numbers
	first []int32   // per entry: index into users
	users []int32   // holds, by entry
	floor []float64 // per hold
	extra []float64 // per hold: weight above its floor
	cols  []int32
	coef  []float64
	short []shortfall
}

// shortfall is an entry that lacks coverage.
type shortfall struct {
	entry int32
	by    float64
}

func (s *weigher) setNetwork(w *network) {
	s.w = w
	if s.unit = w.scale(); s.unit == 0 {
		s.unit = 1
	}
	s.first = make([]int32, len(w.demand)+1)
}

// solve sets holds[i].weight, hold i being on switch group[i] whose reconfigurations take
// overhead[group[i]], and returns the makespan. Every entry must be covered by a hold. If the program gives up, for
// example because of rounding, solve raises the weights greedily.
func (s *weigher) solve(holds []hold, group []int32, overhead []float64) float64 {
	s.index(holds)
	n := len(holds)
	s.extra = resize(s.extra, n+1)
	clear(s.extra)
	s.extra[n] = 1 // as costs: T alone
	s.lp.Lazy = true
	s.lp.Reset(s.extra)
	for h := range overhead {
		s.cols, s.coef = append(s.cols[:0], int32(n)), append(s.coef[:0], 1)
		rhs := overhead[h]
		for i := range holds {
			if int(group[i]) == h {
				s.cols, s.coef = append(s.cols, int32(i)), append(s.coef, -1)
				rhs += s.floor[i]
			}
		}
		s.lp.Add(s.cols, s.coef, rhs/s.unit)
	}
	s.separate(n)
	for i := range holds {
		holds[i].weight = s.floor[i] + s.extra[i]*s.unit
	}
	s.complete(holds)
	return longest(holds, group, overhead)
}

// mostWork bounds the work of one program.
const mostWork = 3e7

// index lists the holds of each entry and sets the floors.
func (s *weigher) index(holds []hold) {
	clear(s.first)
	total := 0
	for i := range holds {
		for _, e := range holds[i].edges {
			s.first[s.w.entry[e]+1]++
		}
		total += len(holds[i].edges)
	}
	for e := 1; e < len(s.first); e++ {
		s.first[e] += s.first[e-1]
	}
	s.users = resize(s.users, total)
	for i := len(holds) - 1; i >= 0; i-- { // from the back, so that first ends as the begin
		for _, e := range holds[i].edges {
			entry := s.w.entry[e]
			s.first[entry+1]--
			s.users[s.first[entry+1]] = int32(i)
		}
	}
	// first[e+1] is now where entry e begins; shift it into place.
	copy(s.first, s.first[1:])
	s.first[len(s.first)-1] = int32(total)
	s.floor = resize(s.floor, len(holds))
	clear(s.floor)
	for e, d := range s.w.demand {
		if u := s.users[s.first[e]:s.first[e+1]]; len(u) == 1 {
			s.floor[u[0]] = max(s.floor[u[0]], d)
		}
	}
}

// separate solves the program, adding the entries that its solution leaves short until there
// are none.
func (s *weigher) separate(n int) {
	begin := s.lp.Work()
	for range 200 {
		_, status := s.lp.Solve(math.Inf(1), 50+20*n)
		if s.lp.Work()-begin > mostWork {
			status = lp.GaveUp
		}
		for i := range n {
			s.extra[i] = s.lp.Value(i)
		}
		if status != lp.Optimal || !s.violated(n) {
			return
		}
		for _, short := range s.short {
			s.cols, s.coef = s.cols[:0], s.coef[:0]
			for _, i := range s.users[s.first[short.entry]:s.first[short.entry+1]] {
				s.cols, s.coef = append(s.cols, i), append(s.coef, 1)
			}
			s.lp.Add(s.cols, s.coef, s.need(short.entry))
		}
	}
}

// need is what an entry asks of its holds beyond their floors, in the program's unit.
func (s *weigher) need(entry int32) float64 {
	need := s.w.demand[entry]
	for _, i := range s.users[s.first[entry]:s.first[entry+1]] {
		need -= s.floor[i]
	}
	return need / s.unit
}

// violated lists the worst shortfalls of the extras, about one for each hold.
func (s *weigher) violated(n int) bool {
	s.short = s.short[:0]
	for e := range s.w.demand {
		u := s.users[s.first[e]:s.first[e+1]]
		if len(u) < 2 {
			continue
		}
		by := s.w.demand[e]
		for _, i := range u {
			by -= s.floor[i] + s.extra[i]*s.unit
		}
		if by > 2*lp.Violation*s.unit {
			s.short = append(s.short, shortfall{int32(e), by})
		}
	}
	if most := 4 + n/2; len(s.short) > most {
		slices.SortFunc(s.short, func(a, b shortfall) int {
			return cmp.Or(cmp.Compare(b.by, a.by), cmp.Compare(a.entry, b.entry))
		})
		s.short = s.short[:most]
	}
	return len(s.short) > 0
}

// complete raises weights, in order, by what rounding left short.
func (s *weigher) complete(holds []hold) {
	for e, d := range s.w.demand {
		u := s.users[s.first[e]:s.first[e+1]]
		for _, i := range u {
			d -= holds[i].weight
		}
		if d > 0 {
			holds[u[0]].weight += d
		}
	}
}

// longest is the makespan of holds on switches.
func longest(holds []hold, group []int32, overhead []float64) float64 {
	most := 0.0
	for h, load := range overhead {
		for i := range holds {
			if int(group[i]) == h {
				load += holds[i].weight
			}
		}
		most = max(most, load)
	}
	return most
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
