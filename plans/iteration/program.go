package iteration

import (
	"cmp"
	"math"
	"slices"
)

// label is the best way to end a call with one candidate.
type label struct {
	end      float64
	switches int // gaps with a switch so far: fewer are better where ends are equal
	before   int // index of the candidate at the position before
}

// programWork bounds the transitions of one program, about a second. Of a very long trace, only some candidates of the
// first call are tried, the fastest among them.
const programWork = 1e8

// program finds candidates for an order of grants by dynamic programming, once for each candidate of the first call. It
// returns the best choice and its time.
func (s *solver) program(order []int) (choice []int, us float64) {
	n := len(order)
	d := &dynamic{s: s, order: order, lists: make([][]int, n), labels: make([][]label, n), place: make([]int, n),
		ends: make([]float64, n)}
	for at, call := range order {
		d.lists[at] = s.byShape[s.p.Of[call]]
		d.labels[at] = make([]label, len(d.lists[at]))
		d.place[call] = at
	}
	us = math.Inf(1)
	var t timed
	try, fewest := make([]int, n), 0
	for done, first := range s.firsts(d.lists) {
		if done > 0 && !s.left(0.97) {
			break
		}
		d.forward(first)
		for last, l := range d.labels[n-1] {
			if math.IsInf(l.end, 1) {
				continue
			}
			d.trace(last, try)
			switches := l.switches + btoi(s.lagOf(try[n-1], try[0]).moves)
			if now := s.time(&t, order, try, early); better(now, switches, us, fewest) {
				choice, us, fewest = slices.Clone(try), now, switches
			}
		}
	}
	return choice, us
}

// firsts returns the candidates of the first call, by index, that a program tries: the fastest plan first.
func (s *solver) firsts(lists [][]int) []int {
	work := 0.0
	for at := range lists {
		work += float64(len(lists[at])) * float64(len(lists[(at+1)%len(lists)]))
	}
	all := make([]int, len(lists[0]))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(s.all[lists[0][a]].us, s.all[lists[0][b]].us) })
	return all[:min(len(all), max(1, int(programWork/work)))]
}

// better compares times, and where they are equal numbers of switches.
func better(us float64, switches int, than float64, fewest int) bool {
	if slack := 1e-9 * us; us < than-slack || math.IsInf(than, 1) {
		return true
	} else if us > than+slack {
		return false
	}
	return switches < fewest
}

// dynamic is the state of one program.
type dynamic struct {
	s      *solver
	order  []int
	place  []int // call -> position
	lists  [][]int
	labels [][]label
	ends   []float64 // by call, of the labels that one label follows
}

// forward computes the labels if the first call has one candidate.
func (d *dynamic) forward(first int) {
	for i := range d.labels[0] {
		d.labels[0][i].end = math.Inf(1)
	}
	start := d.s.p.Trace.Ready(d.order[0], d.ends)
	d.labels[0][first] = label{end: start + d.s.all[d.lists[0][first]].us}
	for at := 1; at < len(d.order); at++ {
		now := d.labels[at]
		for k := range now {
			now[k].end = math.Inf(1)
		}
		for b, l := range d.labels[at-1] {
			if math.IsInf(l.end, 1) {
				continue
			}
			base := math.Max(d.ready(at, b), l.end)
			for k, id := range d.lists[at] {
				g := d.s.lagOf(d.lists[at-1][b], id)
				end := math.Max(base, l.end+g.early) + d.s.all[id].us
				switches := l.switches + btoi(g.moves)
				if math.IsInf(now[k].end, 1) || better(end, switches, now[k].end, now[k].switches) {
					now[k] = label{end, switches, b}
				}
			}
		}
	}
}

// ready returns when the call at a position comes, after the label b of the position before.
func (d *dynamic) ready(at, b int) float64 {
	call := d.order[at]
	oldest := at
	for _, a := range d.s.p.Trace.Calls[call].After {
		if a.Call >= 0 {
			oldest = min(oldest, d.place[a.Call])
		}
	}
	for q := at - 1; q >= oldest; q-- {
		l := &d.labels[q][b]
		d.ends[d.order[q]], b = l.end, l.before
	}
	return d.s.p.Trace.Ready(call, d.ends)
}

// trace writes the choice that ends with a label of the last position.
func (d *dynamic) trace(last int, choice []int) {
	for at := len(d.order) - 1; at >= 0; at-- {
		choice[at] = d.lists[at][last]
		last = d.labels[at][last].before
	}
}
