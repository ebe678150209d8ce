package brute

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// ErrTooLarge is wrapped by errors about problems with too many plans, or of a kind that this package does not try.
var ErrTooLarge = errors.New("brute: too many plans")

// maxPrograms bounds the linear programs of one problem.
const maxPrograms = 20000

// Steps returns the least CCT, in us, of a problem with steps, over the plans in which every plane transmits at most
// visits times in a step; +Inf if no plan is feasible. Errors wrap [ErrTooLarge].
func Steps(p *plans.Problem, visits int) (float64, error) {
	if p.Demand != nil || p.Circuits == plans.Interleaved || p.Ranks > 4 {
		return 0, fmt.Errorf("%w: a kind that is not tried", ErrTooLarge)
	}
	b := &search{p: p, best: math.Inf(1)}
	for i := range p.Steps {
		b.flows = append(b.flows, p.Steps[i].FlowList())
		if p.Steps[i].Bytes == 0 {
			b.flows[i] = nil
		}
	}
	b.list()
	scripts := make([][]script, p.Planes)
	same := true
	for j := range p.Planes {
		b.enumerate(b.begin(j), visits, script{}, 0, 0, &scripts[j])
		same = same && (p.Initial == nil || p.Initial[j].Equal(p.Initial[0]))
	}
	tries := 1.0
	for j := range scripts {
		tries *= float64(len(scripts[j]))
	}
	if tries > 100*maxPrograms {
		return 0, fmt.Errorf("%w: %.0f", ErrTooLarge, tries)
	}
	if err := b.combine(scripts, same, nil, 0); err != nil {
		return 0, err
	}
	return b.best, nil
}

// service is a set of a step's flows that a map carries, each at 1/load of a circuit's rate.
type service struct {
	flows      uint32
	hops, load int
}

// state is a map of a plane and what it serves, by step.
type state struct {
	to       circuit.Permutation
	services [][]service
}

// visit is one transmission: a step, a state and one of its services.
type visit struct {
	step, state int
	how         service
}

// script lists the acts of a plane, in order.
type script []visit

type search struct {
	p        *plans.Problem
	flows    [][][2]int
	states   []state
	programs int
	best     float64
}

// list makes the useful states: one of the states that serve the same flows. If every circuit has a cost, it keeps all
// states, also those with dark ports.
func (b *search) list() {
	var all []state
	perPort := b.p.ReconfigPerPort > 0
	permutations(b.p.Ranks, perPort, func(to circuit.Permutation) {
		if b.p.Circuits == plans.Duplex && !to.Involution() {
			return
		}
		all = append(all, b.stateOf(to.Clone()))
	})
	for i := range all {
		worth := all[i].serves()
		for j := range all {
			if perPort {
				break
			}
			if i != j && worth && covers(&all[j], &all[i]) && (j < i || !covers(&all[i], &all[j])) {
				worth = false
			}
		}
		if worth {
			b.states = append(b.states, all[i])
		}
	}
}

// begin returns the state in which a plane begins, or -1 if it is free. A given map is a separate state, which no
// script enters again.
func (b *search) begin(j int) int {
	if b.p.Initial == nil {
		return -1
	}
	for i := range b.states {
		if b.states[i].to.Equal(b.p.Initial[j]) {
			return i
		}
	}
	b.states = append(b.states, b.stateOf(b.p.Initial[j]))
	return len(b.states) - 1
}

// permutations calls f for all permutations of n ranks; also for partial ones, if partial. f's argument is valid during
// the call.
func permutations(n int, partial bool, f func(circuit.Permutation)) {
	to := make(circuit.Permutation, n)
	var fill func(r int, used uint)
	fill = func(r int, used uint) {
		if r == n {
			f(to)
			return
		}
		if partial {
			to[r] = circuit.Dark
			fill(r+1, used)
		}
		for s := range n {
			if used>>s&1 == 0 {
				to[r] = s
				fill(r+1, used|1<<s)
			}
		}
	}
	fill(0, 0)
}

// stateOf returns the state of a map: every set of flows that it carries; of those with equal hops and load, only the
// largest.
func (b *search) stateOf(to circuit.Permutation) state {
	s := state{to: to, services: make([][]service, len(b.flows))}
	for i, flows := range b.flows {
		var found []service
		for set := uint32(1); set < 1<<len(flows); set++ {
			if v, ok := b.serve(to, flows, set); ok {
				found = append(found, v)
			}
		}
		for _, v := range found {
			worth := true
			for _, w := range found {
				worth = worth && (w == v || !w.atLeast(v))
			}
			if worth {
				s.services[i] = append(s.services[i], v)
			}
		}
	}
	return s
}

// atLeast reports whether v serves all flows of w, no slower.
func (v service) atLeast(w service) bool {
	return w.flows&^v.flows == 0 && v.hops <= w.hops && v.load <= w.load
}

// serve walks the flows of a set along the circuits.
func (b *search) serve(to circuit.Permutation, flows [][2]int, set uint32) (service, bool) {
	v := service{flows: set}
	load := make([]int, len(to))
	for k, f := range flows {
		if set>>k&1 == 0 {
			continue
		}
		hops := 0
		for at := f[0]; at != f[1]; at = to[at] {
			if hops++; hops > len(to) || to[at] == circuit.Dark {
				return v, false
			}
			load[at]++
			v.load = max(v.load, load[at])
		}
		v.hops = max(v.hops, hops)
	}
	return v, b.p.Forwarding || v.hops <= 1
}

func (s *state) serves() bool {
	return slices.ContainsFunc(s.services, func(v []service) bool { return len(v) > 0 })
}

// covers reports whether x has, for every service of y, one that is at least as good.
func covers(x, y *state) bool {
	for i := range y.services {
		for _, w := range y.services[i] {
			ok := false
			for _, v := range x.services[i] {
				ok = ok || v.atLeast(w)
			}
			if !ok {
				return false
			}
		}
	}
	return true
}

// enumerate lists the scripts of a plane that begin with a given one.
func (b *search) enumerate(at, visits int, so script, step, done int, out *[]script) {
	if step == len(b.flows) || len(*out) > maxPrograms {
		*out = append(*out, append(script(nil), so...))
		return
	}
	b.enumerate(at, visits, so, step+1, 0, out)
	if done == visits {
		return
	}
	for s := range b.states {
		if done > 0 && s == at {
			continue // twice in a row in one state is once
		}
		for _, v := range b.states[s].services[step] {
			b.enumerate(s, visits, append(so, visit{step, s, v}), step, done+1, out)
		}
	}
}

// combine tries every choice of scripts, one per plane; of equal planes, in order only.
func (b *search) combine(scripts [][]script, same bool, chosen []script, from int) error {
	j := len(chosen)
	if j == len(scripts) {
		if !b.complete(chosen) {
			return nil
		}
		if b.programs++; b.programs > maxPrograms {
			return ErrTooLarge
		}
		b.best = min(b.best, b.time(chosen))
		return nil
	}
	for i := from; i < len(scripts[j]); i++ {
		next := 0
		if same {
			next = i
		}
		if err := b.combine(scripts, same, append(chosen, scripts[j][i]), next); err != nil {
			return err
		}
	}
	return nil
}

// complete reports whether every flow is served somewhere.
func (b *search) complete(chosen []script) bool {
	got := make([]uint32, len(b.flows))
	for _, s := range chosen {
		for _, v := range s {
			got[v.step] |= v.how.flows
		}
	}
	for i := range got {
		if bits.OnesCount32(got[i]) < len(b.flows[i]) {
			return false
		}
	}
	return true
}

// switchUS returns the time of a reconfiguration between states.
func (b *search) switchUS(from, to int) float64 {
	us := b.p.ReconfigUS
	for r, s := range b.states[to].to {
		if s != circuit.Dark && b.states[from].to[r] != s {
			us += b.p.ReconfigPerPort
		}
	}
	return us
}

// work is what a visit does for its flows, by its length: done less lost.
type work struct {
	flows uint32 // a bit each
	done  term
	lost  float64
}

// time returns the least CCT of a choice of scripts: the variables are the lengths of the steps and
// the start and length of every visit.
func (b *search) time(chosen []script) float64 {
	steps, count := len(b.flows), 0
	for _, s := range chosen {
		count += len(s)
	}
	lp := &program{cost: make([]float64, steps+2*count)}
	for i := range steps {
		lp.cost[i] = 1
	}
	// until(i) is the time at which step i begins, by as much.
	until := func(i int, by float64) (terms []term) {
		for k := range i {
			terms = append(terms, term{k, by})
		}
		return terms
	}
	works := make([][]work, steps)
	k := 0
	for j, s := range chosen {
		at := -1
		if b.p.Initial != nil {
			at = b.begin(j)
		}
		for n, v := range s {
			start, length := steps+2*k, steps+2*k+1
			begins := 0.0
			if at != v.state && (at >= 0 || n > 0) {
				begins = b.switchUS(at, v.state)
			}
			at = v.state
			if n == 0 {
				lp.add(begins, term{start, 1})
			} else {
				lp.add(begins, term{start, 1}, term{start - 2, -1}, term{start - 1, -1})
			}
			lp.add(0, append(until(v.step, -1), term{start, 1})...)
			lp.add(0, append(until(v.step+1, 1), term{start, -1}, term{length, -1})...)
			cost := b.p.AlphaUS + b.p.HopUS*float64(v.how.hops)
			lp.add(cost, term{length, 1})
			load := float64(v.how.load)
			works[v.step] = append(works[v.step], work{v.how.flows, term{length, 1 / load}, cost / load})
			k++
		}
	}
	for i, flows := range b.flows {
		for f := range flows {
			need := plans.WireUS(b.p, b.p.Steps[i].Bytes)
			var terms []term
			for _, w := range works[i] {
				if w.flows>>f&1 == 1 {
					terms = append(terms, w.done)
					need += w.lost
				}
			}
			lp.add(need, terms...)
		}
	}
	return lp.solve()
}
