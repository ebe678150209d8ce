package controller

import (
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// intrude has a rank post on a plane that its job does not hold: nothing comes of it.
func (w *world) intrude(j *job, port, plane int) {
	m := w.core.machine
	if j.holds>>plane&1 != 0 || w.page.faults[plane] != nil || m.planes[plane].move.on || m.grace != 0 {
		return
	}
	epoch, refused, moves := w.page.epochs[plane], len(w.s[port].refused), len(w.dev.moves)
	target := w.page.maps[plane]
	if w.rng.IntN(2) == 0 {
		target = w.shuffle(target, []int{0, 1, 2})
	}
	w.must(w.s[port].Post(plane, epoch, j.holder, target))
	if w.page.epochs[plane] != epoch || w.page.faults[plane] != nil || len(w.dev.moves) != moves ||
		len(w.s[port].refused) != refused+1 {
		w.t.Fatalf("plane %d: port %d has posted without a grant: epoch %d after %d, %v, refused %v", plane, port,
			w.page.epochs[plane], epoch, w.page.faults[plane], w.s[port].refused)
	}
}

// takeOver kills the controller, perhaps in the middle of a move, and starts the next one. Ranks
// find it, claim what they hold and post again what has not happened.
func (w *world) takeOver() {
	w.takes++
	for p := range w.config.Planes {
		if to := w.dev.next[p]; to != nil && w.rng.IntN(2) == 0 {
			half := w.dev.maps[p].Clone() // as far as it has come
			for r := range half {
				if half[r] != to[r] {
					half[r] = circuit.Dark
				}
			}
			w.dev.maps[p], w.dev.next[p] = half, nil
		}
	}
	w.journal.waiting = nil
	known := append([]Recovered(nil), w.journal.planes...)
	w.config.Recovered = append([]Recovered(nil), w.journal.planes...)
	for p := range w.dev.next { // devices settle meanwhile
		w.dev.due[p] = 0
		_, _ = w.dev.Map(p)
	}
	before := append([]circuit.Permutation(nil), w.dev.maps...)
	w.start()
	for p, k := range known {
		if w.page.faults[p] == nil && !before[p].Equal(k.Map) &&
			(k.Intent == nil || !between(before[p], k.Map, k.Intent.To)) {
			w.t.Fatalf("plane %d resumed at %v, the journal has %+v", p, before[p], k)
		}
		if w.off[p] && w.core.machine.planes[p].off == "" {
			w.t.Fatalf("plane %d was disabled, and the takeover has forgotten it", p)
		}
	}
	w.rebook()
	for _, j := range w.jobs {
		j.asked = false
		var held []ocsctl.Lease
		if j.holds != 0 {
			held = append(held, ocsctl.Lease{Holder: j.holder, Mask: j.holds})
		}
		for i, p := range j.ports {
			if i > 0 {
				held = nil
			}
			w.join(p, held...)
		}
		for plane := range j.moves {
			mv := &j.moves[plane]
			if !mv.on || mv.epoch < w.page.epochs[plane] {
				continue
			}
			for _, p := range j.ports {
				if !slices.Contains(mv.left, p) {
					w.must(w.s[p].Post(plane, mv.epoch, j.holder, mv.target))
				}
			}
		}
	}
}
