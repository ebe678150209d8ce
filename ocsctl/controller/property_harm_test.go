package controller

import (
	"errors"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// harm has something go wrong.
func (w *world) harm() {
	plane, port := w.rng.IntN(len(w.config.Planes)), w.rng.IntN(len(w.s))
	j := w.jobOf(port)
	switch w.rng.IntN(14) {
	case 10:
		w.intrude(j, port, plane)
	case 11, 12, 13:
		w.book(j)
	case 0: // a rank dies, and its job with it
		w.dead[port] = true
		if port == j.ports[0] {
			j.holds, j.asked = 0, false
		}
		w.s[port].Detach(false)
		w.join(port)
		w.quit(j)
	case 1:
		w.dev.wrong[plane] = w.shuffle(w.dev.maps[plane], []int{0, 1, 2, 3})
	case 2:
		w.dev.refuse[plane] = !w.dev.refuse[plane]
	case 3:
		w.ask(func(m *machine, done func(error), now int64) {
			m.disable(plane, "test", "ann", func(err error) {
				w.off[plane] = err == nil
				done(err)
			}, now)
		})
	case 4:
		w.off[plane] = false
		w.enable(plane)
	case 5:
		if j.holds != 0 { // a rank that is not honest
			other := w.shuffle(w.page.maps[plane], []int{0, 1, 2})
			epoch := w.epoch(j, plane) + uint32(w.rng.IntN(2))
			w.strays = append(w.strays, stray{port, plane, epoch, other})
			w.must(w.s[port].Post(plane, epoch, j.holder, other))
		}
	case 6, 7:
		w.takeOver()
	case 8:
		w.worsen(plane, errors.New("a port is dark"), nil)
	case 9:
		w.worsen(plane, nil, w.shuffle(w.dev.maps[plane], []int{0, 1, 2}))
	}
}

// worsen makes a device unwell, or moves it as another writer would. Either takes the plane out of service at once.
func (w *world) worsen(plane int, unwell error, drift circuit.Permutation) {
	if w.timed == nil || w.dev.next[plane] != nil || w.page.faults[plane] != nil {
		return
	}
	if drift == nil {
		drift = w.dev.maps[plane]
	} else if drift.Equal(w.dev.maps[plane]) {
		return
	}
	w.timed.unwell[plane], w.dev.maps[plane] = unwell, drift
	w.timed.news(plane)
	if !errors.Is(w.page.faults[plane], ocsctl.ErrPlaneDown) {
		w.t.Fatalf("plane %d: %v though the device has %v and says %v", plane, w.page.faults[plane], drift, unwell)
	}
	w.timed.unwell[plane] = nil
}

// intrude has a rank post on a plane that its job does not hold: nothing comes of it.
func (w *world) intrude(j *job, port, plane int) {
	m := w.core.machine
	if j.holds>>plane&1 != 0 || w.page.faults[plane] != nil || m.planes[plane].move.on || m.grace != 0 {
		return
	}
	epoch, refused, moves := w.s[port].epochs[plane], len(w.s[port].refused), len(w.dev.moves)
	target := w.page.maps[plane]
	if w.rng.IntN(2) == 0 {
		target = w.shuffle(target, []int{0, 1, 2})
	}
	w.must(w.s[port].Post(plane, epoch, j.holder, target))
	if w.s[port].epochs[plane] != epoch || w.page.faults[plane] != nil || len(w.dev.moves) != moves ||
		len(w.s[port].refused) != refused+1 {
		w.t.Fatalf("plane %d: port %d has posted without a grant: epoch %d after %d, %v, refused %v", plane, port,
			w.s[port].epochs[plane], epoch, w.page.faults[plane], w.s[port].refused)
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
			held = append(held, j.lease(j.holds))
		}
		for i, p := range j.ports {
			if i > 0 {
				held = nil
			}
			w.join(p, held...)
		}
		for plane := range j.moves {
			mv := &j.moves[plane]
			at := w.epoch(j, plane)
			if mv.on && w.counts(j, plane) && (at < mv.epoch || at > mv.epoch+1) {
				w.t.Fatalf("plane %d: ports %v are at epoch %d after a takeover, and at %d before", plane, j.ports, at, mv.epoch)
			}
			if !mv.on || mv.epoch < at {
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
