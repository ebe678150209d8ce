package switches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// maxAttempts is how often a change is begun anew because somebody else wrote to other planes of the
// switch after it was read. Nothing was asked of the switch then.
const maxAttempts = 3

// job is one plane's part of a change.
type job struct {
	p   *plane
	m   *move
	ill bool // something was wrong with the plane before

	made  []circuit.Pair // by the change, by rank
	after circuit.Permutation
	least driver.Level // of the circuits that were made
	err   error
	done  bool // decided: it takes no further part
}

// carry carries out the moves that are waiting, together: the switch moves its mirrors at once.
func (u *unit) carry(ctx context.Context) {
	jobs := u.jobs()
	if len(jobs) == 0 {
		return
	}
	moving, cancel := context.WithTimeout(ctx, u.d.cfg.MoveTimeout)
	err := u.open(moving)
	if err == nil {
		u.change(moving, jobs)
		u.rest(moving, jobs)
		u.probe(moving, jobs)
	} else {
		failAll(jobs, u.unusable(err))
	}
	cancel()
	u.settle(ctx, jobs)
}

// jobs takes the moves that are waiting.
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

// change gives the planes of the jobs their maps, in one change of the switch.
func (u *unit) change(ctx context.Context, jobs []*job) {
	for attempt := 1; ; attempt++ {
		if u.s.Table() == nil {
			if _, err := u.s.Look(ctx); err != nil {
				failAll(jobs, err)
				return
			}
		}
		table := u.s.Table()
		c := driver.Change{Before: table, After: table.Clone(), Check: make([]bool, len(table)), Want: u.d.cfg.rule().Want}
		idle := u.compose(&c, jobs)
		if undecided(jobs) == 0 {
			return
		}
		verdicts, err := u.s.Set(ctx, c, idle)
		if errors.Is(err, driver.ErrDrift) && verdicts == nil && attempt < maxAttempts {
			continue // nothing was asked; a look decides which plane has drifted
		}
		for _, j := range jobs {
			if !j.done {
				u.judge(j, verdicts, err)
			}
		}
		return
	}
}

// compose enters the planes of the jobs into a change, and returns the ports of planes whose circuits may
// be made again. Jobs of planes that have drifted are decided.
func (u *unit) compose(c *driver.Change, jobs []*job) (idle []bool) {
	idle = make([]bool, len(c.Before))
	for _, j := range jobs {
		if j.done {
			continue
		}
		// A circuit to another plane belongs to neither; a move takes it away.
		own, foreign := u.block(c.Before, j.p)
		if foreign != nil {
			if j.m.From != nil || j.m.only {
				j.fail(fmt.Errorf("%w: %w", driver.ErrDrift, foreign))
				continue
			}
			own = circuit.AllDark(len(j.p.ports.In))
		}
		if j.m.From != nil {
			if err := j.p.drift(own, j.m.From); err != nil {
				j.fail(err)
				continue
			}
		}
		j.made, j.after = j.made[:0], j.m.To
		if j.m.only {
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
			c.After[at], c.Check[at], idle[at] = to, true, j.m.Idle && !j.m.only
		}
		c.Token = max(c.Token, j.m.Token)
	}
	return idle
}

// judge decides how a change went for one plane.
func (u *unit) judge(j *job, verdicts []driver.Circuit, err error) {
	n := len(j.p.ports.In)
	var touched, bad int
	var first []string
	j.least = driver.Token
	for _, v := range verdicts {
		r := v.In - j.p.first
		if r < 0 || r >= n {
			continue
		}
		touched++
		if v.Reason != "" || v.Observed != v.Intended {
			if bad++; bad <= maxExamples {
				first = append(first, u.sentence(j.p, v))
			}
		}
		if slices.ContainsFunc(j.made, func(c circuit.Pair) bool { return c.From == r }) {
			j.least = min(j.least, v.Verified)
		}
	}
	switch {
	case bad > 0:
		if sentinel := cause(err); sentinel != nil {
			err = sentinel
		}
		if bad > maxExamples {
			first = append(first, "...")
		}
		j.fail(fmt.Errorf("%w: %d of %d circuits: %s", err, bad, touched, strings.Join(first, "; ")))
	case err == nil, errors.Is(err, driver.ErrNotAsIntended), errors.Is(err, driver.ErrDrift) && verdicts != nil:
		// What is wrong is another plane's.
	default:
		j.fail(err)
	}
}

// maxExamples is how many circuits an error names.
const maxExamples = 3

// sentence is a verdict in words.
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

// cause is the sentinel of an error of a change whose text speaks of ports of the whole switch.
func cause(err error) error {
	for _, sentinel := range []error{driver.ErrNotAsIntended, driver.ErrDrift} {
		if errors.Is(err, sentinel) {
			return sentinel
		}
	}
	if err == nil {
		return driver.ErrNotAsIntended
	}
	return nil
}

// rest waits for as long as mirrors may take, where nothing but the switch's table says that the circuits
// are there: a rank that sends earlier loses frames.
func (u *unit) rest(ctx context.Context, jobs []*job) {
	var longest time.Duration
	for _, j := range jobs {
		if !j.done && len(j.made) > 0 && j.least < driver.Status {
			longest = max(longest, j.p.reconfig)
		}
	}
	if longest == 0 {
		return
	}
	select {
	case <-time.After(longest):
	case <-ctx.Done():
	}
}

// probe sends tokens over the circuits that were made, and on a plane that no rank uses over all, where
// that is wanted and possible.
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
	ctx, cancel := context.WithTimeout(ctx, u.d.cfg.ProbeTimeout)
	defer cancel()
	through, err := u.d.cfg.Prober.Probe(ctx, j.p.index, circuits)
	if err == nil && len(through) != len(circuits) {
		err = fmt.Errorf("%d answers for %d circuits", len(through), len(circuits))
	}
	if err != nil {
		j.fail(fmt.Errorf("%w: tokens over the circuits: %w", driver.ErrNotAsIntended, err))
		return
	}
	for i, c := range circuits {
		u.s.Proved(j.p.first+c.From, through[i], time.Now())
		if !through[i] {
			j.fail(fmt.Errorf("%w: no token came from rank %d to rank %d, port %s", driver.ErrNotAsIntended, c.From, c.To, u.egress(j.p.first+c.To)))
		}
	}
}

// settle ends the moves. Where something went or was wrong, it looks at the switch first.
func (u *unit) settle(ctx context.Context, jobs []*job) {
	var health []driver.Health
	var unknown error
	if u.s == nil || u.s.Table() == nil || slices.ContainsFunc(jobs, func(j *job) bool { return j.ill || j.err != nil }) {
		ctx, cancel := context.WithTimeout(ctx, u.d.cfg.LookTimeout) // the time of the move may be over
		if health, unknown = u.ask(ctx); unknown != nil && u.s != nil {
			u.s.Forget()
		}
		u.heard(unknown)
		cancel()
	}
	planes := make([]*plane, len(jobs))
	u.d.mu.Lock()
	for i, j := range jobs {
		p := j.p
		planes[i] = p
		p.move, p.failure, p.ended = nil, nil, time.Now()
		if j.err != nil {
			p.failure = fmt.Errorf("epoch %d: %w", j.m.Epoch, j.err)
		}
		if unknown != nil {
			p.observed, p.unknown, p.watch, p.verified, p.unlit = nil, unknown, unknown, "", nil
		} else {
			u.see(p, health)
		}
	}
	u.d.mu.Unlock()
	u.d.notify(planes)
	if unknown == nil {
		u.update(func(p *plane) { // what the change has shown of planes that did not move
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

func undecided(jobs []*job) int {
	n := 0
	for _, j := range jobs {
		if !j.done {
			n++
		}
	}
	return n
}
