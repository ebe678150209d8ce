package controller

import (
	"fmt"
	"slices"

	"lightpath/plans/circuit"
)

// booking is a scheduler's job: the ports of a communicator, on all planes. Its ranks move the circuits.
type booking struct {
	id    string
	ports []int
	begun bool // the scheduler knows that it has begun
}

// book begins a scheduler's job on the ports of a communicator, or ends the one that has them.
func (w *world) book(j *job) {
	for _, b := range w.booked {
		if slices.Equal(b.ports, j.ports) {
			w.unbook(b)
			return
		}
	}
	w.bookings++
	b := &booking{id: fmt.Sprint(w.bookings), ports: j.ports}
	w.booked = append(w.booked, b)
	w.ask(func(m *machine, done func(error), now int64) {
		record := Job{ID: b.id, Ports: b.ports, Mask: 1<<len(m.planes) - 1, Who: "slurm"}
		m.beginJob(record, nil, func(err error) {
			if b.begun = err == nil; err != nil {
				w.booked = slices.DeleteFunc(w.booked, func(x *booking) bool { return x == b })
			}
			done(err)
		}, now)
	})
}

func (w *world) unbook(b *booking) {
	w.booked = slices.DeleteFunc(w.booked, func(x *booking) bool { return x == b })
	w.ask(func(m *machine, done func(error), now int64) { m.endJob(b.id, "slurm", done, now) })
}

// bookedAt returns the job of a scheduler that has a port; nil: none.
func (w *world) bookedAt(port int) *booking {
	for _, b := range w.booked {
		if port != circuit.Dark && b.begun && slices.Contains(b.ports, port) {
			return b
		}
	}
	return nil
}

// mayTouch: no rank makes a circuit from a port outside a job into it.
func (w *world) mayTouch(plane int, m Move) {
	for p, to := range m.To {
		if b := w.bookedAt(to); m.From[p] != to && b != nil && w.bookedAt(p) != b && !w.dead[p] && !m.Idle {
			w.t.Fatalf("plane %d epoch %d: the circuit %d>%d into job %s of ports %v", plane, m.Epoch, p, to, b.id, b.ports)
		}
	}
}

// rebook checks that a controller that has taken over knows the jobs, and ends them.
func (w *world) rebook() {
	for _, b := range slices.Clone(w.booked) {
		if b.begun && w.core.machine.jobByID(b.id) == nil {
			w.t.Fatalf("job %s of ports %v was forgotten by a takeover", b.id, b.ports)
		}
		w.unbook(b)
	}
}
