package switches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lightpath/internal/clock"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// maxAttempts is how often a change is tried if another writer changes the switch between the read and the change. The
// switch was asked for nothing in the failed attempts.
const maxAttempts = 3

// job is one plane's part of a change.
type job struct {
	p   *plane
	m   *move
	ill bool // the plane had a problem before the change

	ports []string // of before, if the job has changed them; nil: it has not

	made  []circuit.Pair      // circuits that the change makes, by rank
	after circuit.Permutation // map after the change
	least driver.Level        // lowest level to which a made circuit was verified
	err   error
	done  bool // decided: later steps skip it
}

// executeMoves executes all pending moves of the switch in one change, and reports whether there were any.
func (u *unit) executeMoves(ctx context.Context) bool {
	jobs := u.jobs()
	if len(jobs) == 0 {
		return false
	}
	moving, cancel := clock.WithTimeout(ctx, u.d.cfg.MoveTimeout)
	err := u.open(moving)
	if err == nil {
		u.remap(moving, jobs)
		u.change(moving, jobs)
		u.waitReconfig(moving, jobs)
		u.probe(moving, jobs)
	} else {
		failAll(jobs, u.unusable(err))
	}
	cancel()
	u.keepPorts(ctx, jobs)
	u.settle(ctx, jobs)
	return true
}

// jobs returns a job for each pending move.
func (u *unit) jobs() []*job {
	u.d.mu.Lock()
	defer u.d.mu.Unlock()
	var jobs []*job
	for _, p := range u.planes {
		if p.move != nil {
			jobs = append(jobs, &job{p: p, m: p.move, ill: p.watch != nil || p.failure != nil})
		}
	}
	return jobs
}

// change sets the maps of the jobs' planes, in one change of the switch.
func (u *unit) change(ctx context.Context, jobs []*job) {
	for attempt := 1; ; attempt++ {
		if decided(jobs) {
			return // there may be no session
		}
		if u.s.Table() == nil {
			if _, err := u.s.Look(ctx); err != nil {
				failAll(jobs, err)
				return
			}
		}
		table := u.s.Table()
		c := driver.Change{
			Before: table, After: table.Clone(), Check: make([]bool, len(table)), Want: u.d.cfg.rule().Want,
			May: jobs[0].m.Leading, // all moves are of one controller
		}
		idle := u.compose(&c, jobs)
		if decided(jobs) {
			return
		}
		verdicts, err := u.s.Set(ctx, c, idle)
		if errors.Is(err, driver.ErrDrift) && verdicts == nil && attempt < maxAttempts {
			continue // the switch was asked for nothing; the next read shows which plane has drifted
		}
		for _, j := range jobs {
			if !j.done {
				u.judge(j, verdicts, err)
			}
		}
		return
	}
}

// compose adds the jobs' planes to a change. idle marks the ports whose circuits may be made again. compose fails the
// jobs of planes that have drifted.
func (u *unit) compose(c *driver.Change, jobs []*job) (idle []bool) {
	idle = make([]bool, len(c.Before))
	for _, j := range jobs {
		if j.done {
			continue
		}
		// A circuit between two planes belongs to neither; a move without From removes it.
		own, foreign := u.block(c.Before, j.p)
		if foreign != nil {
			if j.m.From != nil || j.m.verifyOnly {
				j.fail(fmt.Errorf("%w: %w", driver.ErrDrift, foreign))
				continue
			}
			own = circuit.AllDark(len(j.p.Ports.In))
		}
		if j.m.From != nil {
			if err := j.p.drift(own, j.m.From); err != nil {
				j.fail(err)
				continue
			}
		}
		j.made, j.after = j.made[:0], j.m.To
		if j.m.verifyOnly {
			j.after = own
		}
		for r, to := range j.after {
			if to != circuit.Dark && to != own[r] {
				j.made = append(j.made, circuit.Pair{From: r, To: to})
			}
			if to != circuit.Dark {
				to += j.p.first
			}
			at := j.p.first + r
			c.After[at], idle[at] = to, j.m.Idle && !j.m.verifyOnly
			// A move of ranks does not wait for a circuit that is not good and that it does not touch.
			c.Check[at] = j.m.Idle || to != c.Before[at] || u.s.Good(at)
		}
		c.Token = max(c.Token, j.m.Token)
	}
	return idle
}

// judge evaluates the result of a change for one plane.
func (u *unit) judge(j *job, verdicts []driver.Circuit, err error) {
	n := len(j.p.Ports.In)
	var touched, bad int
	var first []string
	why := map[int]string{}
	j.least = driver.Token
	for _, v := range verdicts {
		r := v.In - j.p.first
		if r < 0 || r >= n {
			continue
		}
		touched++
		made := slices.ContainsFunc(j.made, func(c circuit.Pair) bool { return c.From == r })
		if made {
			j.least = min(j.least, v.Verified)
		}
		// A circuit that a move of ranks keeps is not the fault of the move: the session has what is known of it.
		kept := !made && !j.m.Idle
		if v.Observed == v.Intended && (v.Reason == "" || kept) {
			continue
		}
		text := u.sentence(j.p, v)
		for _, p := range []int{r, v.Intended - j.p.first, v.Observed - j.p.first} {
			if p >= 0 && p < n {
				why[p] = text
			}
		}
		if bad++; bad <= maxExamples {
			first = append(first, text)
		}
	}
	switch {
	case bad > 0:
		err = cause(err)
		if bad > maxExamples {
			first = append(first, "...")
		}
		ofPorts := errors.Is(err, driver.ErrNotAsIntended)
		err = fmt.Errorf("%w: %d of %d circuits: %s", err, bad, touched, strings.Join(first, "; "))
		if ofPorts {
			err = &controller.BadPorts{Why: why, Err: err}
		}
		j.fail(err)
	case err == nil, errors.Is(err, driver.ErrNotAsIntended), errors.Is(err, driver.ErrDrift) && verdicts != nil:
		// Only circuits of other planes are wrong.
	default:
		j.fail(err)
	}
}

// maxExamples is how many circuits an error names.
const maxExamples = 3

// sentence describes a verdict for operators.
func (u *unit) sentence(p *plane, v driver.Circuit) string {
	s := fmt.Sprintf("rank %d, port %s, ", v.In-p.first, u.ports.In[v.In])
	if v.Intended == circuit.Dark {
		s += "to go dark"
	} else {
		s += fmt.Sprintf("to rank %d, port %s", v.Intended-p.first, u.egress(v.Intended))
	}
	if v.Observed != v.Intended {
		s += " goes to " + u.where(v.Observed)
	}
	if v.Reason != "" {
		s += ": " + v.Reason
	}
	return s
}

func (u *unit) where(port int) string {
	if port < 0 || port >= len(u.ports.In) {
		return "nowhere"
	}
	return "port " + u.egress(port)
}

// cause returns an error of a change for one of its planes with wrong circuits. A sentinel is without its text, which
// names ports of the whole switch.
func cause(err error) error {
	for _, sentinel := range []error{driver.ErrNotAsIntended, driver.ErrDrift} {
		if errors.Is(err, sentinel) {
			return sentinel
		}
	}
	return cmp.Or(err, driver.ErrNotAsIntended)
}

// waitReconfig waits for the reconfiguration time if a new circuit was verified by the switch's table only. A rank that
// sends earlier would lose frames.
func (u *unit) waitReconfig(ctx context.Context, jobs []*job) {
	var longest time.Duration
	for _, j := range jobs {
		if !j.done && len(j.made) > 0 && j.least < driver.Status {
			longest = max(longest, j.p.Reconfig)
		}
	}
	if longest == 0 {
		return
	}
	_ = clock.Sleep(ctx, longest) // the circuits are up after that time, or the move ends before
}

// probe sends tokens over the new circuits, or over all circuits of an idle plane, if Config.Verify asks for it and
// there is a Prober.
func (u *unit) probe(ctx context.Context, jobs []*job) {
	if u.d.cfg.Verify < driver.Token || u.d.cfg.Prober == nil {
		return
	}
	for _, j := range jobs {
		circuits := j.made
		if j.m.Idle {
			circuits = pairs(j.after)
		}
		if !j.done && len(circuits) > 0 {
			u.probeAll(ctx, j, circuits)
		}
	}
}

func pairs(m circuit.Permutation) (all []circuit.Pair) {
	for r, to := range m {
		if to != circuit.Dark {
			all = append(all, circuit.Pair{From: r, To: to})
		}
	}
	return all
}

func (u *unit) probeAll(ctx context.Context, j *job, circuits []circuit.Pair) {
	ctx, cancel := clock.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	arrived, err := u.d.cfg.Prober.Probe(ctx, j.p.index, circuits)
	if err == nil && len(arrived) != len(circuits) {
		err = fmt.Errorf("%d answers for %d circuits", len(arrived), len(circuits))
	}
	if err != nil {
		j.fail(fmt.Errorf("%w: tokens over the circuits: %w", driver.ErrNotAsIntended, err))
		return
	}
	why, first := map[int]string{}, ""
	for i, c := range circuits {
		u.s.Proved(j.p.first+c.From, arrived[i], clock.Now(ctx))
		if !arrived[i] {
			text := fmt.Sprintf("no token came from rank %d to rank %d, port %s", c.From, c.To, u.egress(j.p.first+c.To))
			why[c.From], why[c.To], first = text, text, cmp.Or(first, text)
		}
	}
	if first != "" {
		j.fail(&controller.BadPorts{Why: why, Err: fmt.Errorf("%w: %s", driver.ErrNotAsIntended, first)})
	}
}

// settle ends the moves. If a move failed, or a plane had a problem before, it first reads the switch.
func (u *unit) settle(ctx context.Context, jobs []*job) {
	var health []driver.Health
	var unknown error
	bad := slices.ContainsFunc(jobs, func(j *job) bool { return j.ill || j.err != nil })
	if bad || u.s == nil || u.s.Table() == nil {
		ctx, cancel := clock.WithTimeout(ctx, u.d.cfg.LookTimeout) // the move's timeout may have passed
		if health, unknown = u.read(ctx); unknown != nil && u.s != nil {
			u.s.Forget(ctx)
		}
		u.setBad(unknown)
		cancel()
	}
	planes := make([]*plane, len(jobs))
	u.d.mu.Lock()
	for i, j := range jobs {
		p := j.p
		planes[i] = p
		p.move, p.failure, p.ended = nil, j.err, clock.Now(ctx)
		if unknown != nil {
			p.lose(unknown)
		} else {
			u.see(p, health)
		}
	}
	u.d.mu.Unlock()
	u.d.notify(planes)
	if unknown == nil {
		u.update(func(p *plane) { // the change may also have read new circuits of planes without a move
			if observed, foreign := u.block(u.s.Table(), p); foreign != nil || !p.observed.Equal(observed) {
				u.see(p, nil)
			}
		})
	}
}

func (j *job) fail(err error) {
	if j.done = true; j.err == nil {
		j.err = err
	}
}

func failAll(jobs []*job, err error) {
	for _, j := range jobs {
		if !j.done {
			j.fail(err)
		}
	}
}

func decided(jobs []*job) bool {
	return !slices.ContainsFunc(jobs, func(j *job) bool { return !j.done })
}
