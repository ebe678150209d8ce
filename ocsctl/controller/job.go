package controller

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// ErrJob says that a job has the id or the ports already.
var ErrJob = errors.New("another job has it")

// Job is a job of a scheduler. It has its ports on the planes of Mask until it ends.
type Job struct {
	ID    string `json:"id"`
	Name  string `json:"name,omitempty"` // for people
	Ports []int  `json:"ports"`          // in the order of the job's ranks
	Mask  uint64 `json:"mask"`           // bit j: plane j
	// Fixed: the job began with circuits, which stay until it ends. Otherwise its ports began dark, and its ranks move
	// their circuits.
	Fixed bool      `json:"fixed,omitempty"`
	Since time.Time `json:"since"`
	Who   string    `json:"who,omitempty"` // the operator who began it
}

// JobSnapshot is a job's part of a [Snapshot].
type JobSnapshot struct {
	Job
	// Waits has the planes whose circuits are not set yet: they move, are out of service, or a communicator uses them.
	Waits uint64 `json:"waits,omitempty"`
}

// BeginJob implements Controller.
func (c *Core) BeginJob(j Job, maps []circuit.Permutation) error {
	if err := c.checkJob(&j, maps); err != nil {
		return fmt.Errorf("controller: job %s: %w", j.ID, err)
	}
	j.Ports = slices.Clone(j.Ports)
	return c.await(func(done func(error)) error {
		return c.do(func(now int64) { c.machine.beginJob(j, maps, done, now) })
	})
}

// EndJob implements Controller.
func (c *Core) EndJob(id, who string) error {
	return c.await(func(done func(error)) error {
		return c.do(func(now int64) { c.machine.endJob(id, who, done, now) })
	})
}

func (c *Core) checkJob(j *Job, maps []circuit.Permutation) error {
	n := len(c.cfg.Planes)
	if err := j.Check(c.cfg.Ports, n); err != nil {
		return err
	}
	if maps != nil && len(maps) != n {
		return fmt.Errorf("%d maps for %d planes", len(maps), n)
	}
	for plane, m := range maps {
		if m == nil {
			continue
		}
		if err := m.Validate(len(j.Ports)); err != nil {
			return fmt.Errorf("%s: map of its %d ranks %w", &c.cfg.Planes[plane], len(j.Ports), err)
		}
	}
	return nil
}

// Check returns an error if the job cannot be one of a fabric of so many ports and planes.
func (j *Job) Check(ports, planes int) error {
	switch {
	case j.ID == "":
		return errors.New("it has no id")
	case len(j.Ports) == 0:
		return errors.New("it has no ports")
	}
	if err := ocsctl.CheckMask(j.Mask, planes); err != nil {
		return err
	}
	return circuit.CheckPorts(j.Ports, ports)
}

// jobOf returns the job that has a port of the plane; nil: none.
func (pl *plane) jobOf(port int) *Job {
	if pl.owners == nil {
		return nil
	}
	return pl.owners[port]
}

// addJob gives a job its ports.
func (m *machine) addJob(j *Job) {
	m.jobs = append(m.jobs, j)
	for plane, pl := range m.planes {
		if j.Mask>>plane&1 == 0 {
			continue
		}
		if pl.owners == nil {
			pl.owners = make([]*Job, m.cfg.Ports)
		}
		for _, p := range j.Ports {
			pl.owners[p] = j
		}
	}
}

// dropJob takes a job's ports back.
func (m *machine) dropJob(job *Job) {
	m.jobs = slices.DeleteFunc(m.jobs, func(j *Job) bool { return j == job })
	for _, pl := range m.planes {
		for p, j := range pl.owners {
			if j == job {
				pl.owners[p] = nil
			}
		}
		if len(m.jobs) == 0 {
			pl.owners = nil
		}
	}
}

func (m *machine) jobByID(id string) *Job {
	for _, j := range m.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// jobName returns the id of the job that a port has on one of the planes of mask; "": none.
func (m *machine) jobName(mask uint64, port int) string {
	for plane, pl := range m.planes {
		if j := pl.jobOf(port); mask>>plane&1 != 0 && j != nil {
			return j.ID
		}
	}
	return ""
}

// keeps returns why circuits of jobs forbid a change of a plane; nil: none does. A job's ranks may change circuits
// among its ports, unless they were set for the job; by is the job of the rank, or nil. Until a new job has its
// circuits on the plane, the communicator that uses the plane goes on as before.
func (pl *plane) keeps(from, to circuit.Permutation, by *Job) error {
	if pl.owners == nil {
		return nil
	}
	for p, peer := range to {
		if from[p] == peer {
			continue
		}
		for _, end := range []int{p, peer} {
			if end == circuit.Dark {
				continue
			}
			if j := pl.jobOf(end); j != nil && (j != by || j.Fixed) && !pl.waits(j) {
				return fmt.Errorf("%s: port %d is of job %s since %s (lightpath jobs end %s gives it back): %w",
					pl, end, j.ID, j.Since.UTC().Format(time.RFC3339), j.ID, ocsctl.ErrPinned)
			}
		}
	}
	return nil
}

// beginJob reserves the ports of a job, and then gives the planes in service the job's maps; ports without a map go
// dark. If that fails, it ends the job. A repeated begin of the same job sets the maps again: its answer may have been
// lost.
func (m *machine) beginJob(j Job, maps []circuit.Permutation, done func(error), now int64) {
	if err := m.mayBegin(&j, maps != nil); err != nil {
		done(fmt.Errorf("controller: %w", err))
		return
	}
	job := m.jobByID(j.ID)
	if job == nil {
		job = &j
		job.Since = m.wall(now)
		m.addJob(job)
	}
	job.Fixed = job.Fixed || maps != nil
	finish := func(failed []error) {
		if len(failed) == 0 {
			done(nil)
			return
		}
		m.later(func(now int64) {
			if m.jobByID(job.ID) == job {
				m.endJob(job.ID, job.Who, func(error) {}, now)
			}
		})
		done(fmt.Errorf("controller: job %s: %w", job.ID, failed[0]))
	}
	all := &gather{done: finish}
	recorded := all.add()
	orders := m.queueOrders(job, maps, all)
	m.recordJob(job, Began, j.Who, now, func(err error) {
		m.later(func(now int64) {
			if err != nil {
				m.dropOrders(job, err)
			}
			for _, o := range orders {
				o.durable = true
			}
			m.obey(now)
			m.tellHolders()
			recorded(err)
		})
	})
}

// mayBegin returns why a job cannot begin; nil: it can, or it is the same job again. fixed: it begins with circuits.
func (m *machine) mayBegin(j *Job, fixed bool) error {
	if m.over != nil {
		return m.over
	}
	if old := m.jobByID(j.ID); old != nil {
		same := old.Mask == j.Mask && slices.Equal(old.Ports, j.Ports) && old.Name == j.Name
		switch since := old.Since.UTC().Format(time.RFC3339); {
		case same && old.Fixed && !fixed:
			return fmt.Errorf("job %s has begun at %s with circuits, so it cannot begin without: %w", j.ID, since, ErrJob)
		case same:
			return nil
		default:
			return fmt.Errorf("job %s has begun at %s with %s, so it cannot begin with %s: %w", j.ID, since,
				m.describe(old), m.describe(j), ErrJob)
		}
	}
	serves := false
	for plane, pl := range m.planes {
		if j.Mask>>plane&1 == 0 {
			continue
		}
		serves = serves || !pl.outOfService() && !j.hasOut(pl)
		for _, p := range j.Ports {
			if old := pl.jobOf(p); old != nil {
				return fmt.Errorf("job %s: port %d of %s is of job %s since %s: %w", j.ID, p, pl, old.ID,
					old.Since.UTC().Format(time.RFC3339), ErrJob)
			}
		}
	}
	if !serves {
		return fmt.Errorf("job %s: %w", j.ID, m.noneLeft(j.Mask))
	}
	return nil
}

// describe returns what must be the same when a job begins again.
func (m *machine) describe(j *Job) string {
	return fmt.Sprintf("name %q, planes %s, ports %s", j.Name, m.names(j.Mask), list(j.Ports))
}

// outOfService reports whether the plane has a fault, or an operator has disabled it.
func (pl *plane) outOfService() bool { return pl.fault != nil && pl.move.order == nil || pl.off != "" }

// queueOrders has the planes set for a job when they are free and the job is durable.
func (m *machine) queueOrders(job *Job, maps []circuit.Permutation, all *gather) (orders []*order) {
	for plane, pl := range m.planes {
		if job.Mask>>plane&1 == 0 {
			continue
		}
		o := &order{job: job, who: job.Who + " for job " + job.ID, done: all.add()}
		if maps != nil {
			o.part = maps[plane]
		}
		pl.orders, orders = append(pl.orders, o), append(orders, o)
	}
	return orders
}

// dropOrders ends the orders of a job that have not begun.
func (m *machine) dropOrders(job *Job, why error) {
	for _, pl := range m.planes {
		pl.orders = slices.DeleteFunc(pl.orders, func(o *order) bool {
			if o.job == job {
				m.later(func(int64) { o.done(why) })
			}
			return o.job == job
		})
	}
}

// hasOut reports whether a port of the job is out of service on a plane.
func (j *Job) hasOut(pl *plane) bool {
	return slices.ContainsFunc(pl.out(), func(o PortOut) bool { return slices.Contains(j.Ports, o.Port) })
}

// nextOrder returns the first order for a job whose ports are in service; -1: there is none.
func (pl *plane) nextOrder() int {
	return slices.IndexFunc(pl.orders, func(o *order) bool { return !o.job.hasOut(pl) })
}

// obey continues the orders for jobs that have waited for a plane. The begin of a job does not wait for a plane that is
// out of service, nor for a port of the job that is.
func (m *machine) obey(now int64) {
	for j, pl := range m.planes {
		for {
			i := pl.nextOrder()
			if i < 0 || !pl.orders[i].durable || pl.outOfService() || m.operable(pl) != nil {
				break
			}
			o := pl.orders[i]
			pl.orders = slices.Delete(pl.orders, i, i+1)
			m.set(j, o, now)
		}
		for _, o := range pl.orders {
			if !pl.outOfService() && !o.job.hasOut(pl) {
				continue
			}
			done := o.done
			o.done = func(error) {}
			done(nil)
		}
	}
}

// endJob gives the ports of a job back. It moves no circuit, and the end of an unknown job changes nothing.
func (m *machine) endJob(id, who string, done func(error), now int64) {
	job := m.jobByID(id)
	if m.over != nil || job == nil {
		done(m.over)
		return
	}
	m.dropJob(job)
	m.dropOrders(job, fmt.Errorf("job %s has ended", id))
	m.recordJob(job, Ended, who, now, done)
	m.grant(now) // requests may have waited for its orders
}

// recordJob records that a job has begun or ended, on each of its planes, and calls done when all of that is durable.
func (m *machine) recordJob(job *Job, kind EventKind, who string, now int64, done func(error)) {
	all := &gather{done: func(failed []error) { done(cmp.Or(failed...)) }}
	last := all.add()
	record := *job // events are shared
	for plane, pl := range m.planes {
		if job.Mask>>plane&1 != 0 {
			m.confirm(now, Event{Kind: kind, Plane: plane, Epoch: pl.epoch, Port: -1, Who: who, Job: &record}, all.add())
		}
	}
	last(nil)
}

// gather calls done once with the errors, when all callbacks of add have been called.
type gather struct {
	left   int
	failed []error
	done   func(failed []error)
}

func (g *gather) add() func(error) {
	g.left++
	return func(err error) {
		if err != nil {
			g.failed = append(g.failed, err)
		}
		if g.left--; g.left == 0 {
			g.done(g.failed)
		}
	}
}

// takeOverJobs restores the jobs of the journal. The record of one of its planes is enough for a job.
func (m *machine) takeOverJobs() {
	for _, r := range m.cfg.Recovered {
		for _, j := range r.Jobs {
			if m.jobByID(j.ID) == nil {
				m.addJob(&j)
			}
		}
	}
}

// waits reports whether circuits of the plane are still to be set for a job.
func (pl *plane) waits(j *Job) bool {
	o := pl.move.order
	return o != nil && o.job == j || slices.ContainsFunc(pl.orders, func(o *order) bool { return o.job == j })
}

// jobSnapshots returns the jobs in the order of their begin.
func (m *machine) jobSnapshots() []JobSnapshot {
	var all []JobSnapshot
	for _, j := range m.jobs {
		s := JobSnapshot{Job: *j}
		for plane, pl := range m.planes {
			if pl.waits(j) {
				s.Waits |= 1 << plane
			}
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b JobSnapshot) int { return a.Since.Compare(b.Since) })
	return all
}
