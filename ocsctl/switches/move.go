package switches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// maxAttempts is how often a change is begun anew because somebody else wrote to other planes of the
// switch after it was read. Nothing was asked of the switch then.
const maxAttempts = 3

// job is one plane's part of a change.
type job struct {
	p       *plane
	m       controller.Move
	suspect []bool // circuits that may not carry light, by rank
	ill     bool   // something was wrong with the plane before

	made  []circuit.Pair // by the change, by rank
	level driver.Level
	bad   []bool // circuits that are there and may not carry light, by rank
	err   error
	mute  bool // tokens were lost
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
		u.remake(moving, jobs)
		u.change(moving, jobs, func(j *job, own circuit.Permutation) circuit.Permutation { return j.m.To })
		u.rest(moving, jobs)
		u.probe(moving, jobs)
	} else {
		failAll(jobs, fmt.Errorf("switch %s does not answer: %w", u.name, err))
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
		if p.move == nil {
			continue
		}
		jobs = append(jobs, &job{p: p, m: *p.move, suspect: slices.Clone(p.suspect), ill: p.watch != nil, bad: make([]bool, len(p.ports.In))})
	}
	return jobs
}

// remake removes circuits that may not carry light although the switch has them, where the target keeps
// them: only making them again verifies them.
func (u *unit) remake(ctx context.Context, jobs []*job) {
	var some []*job
	for _, j := range jobs {
		if slices.Contains(j.suspect, true) {
			some = append(some, j)
		}
	}
	if len(some) == 0 {
		return
	}
	left := make(map[*job]circuit.Permutation)
	u.change(ctx, some, func(j *job, own circuit.Permutation) circuit.Permutation {
		mid := own.Clone()
		for r, suspect := range j.suspect {
			if suspect && mid[r] == j.m.To[r] {
				mid[r] = circuit.Dark
			}
		}
		left[j] = mid
		return mid
	})
	for j, mid := range left {
		j.m.From = mid
	}
}

// change gives the planes of the jobs that are not decided a map each, in one change of the switch.
func (u *unit) change(ctx context.Context, jobs []*job, target func(j *job, own circuit.Permutation) circuit.Permutation) {
	for attempt := 1; ; attempt++ {
		if u.table == nil {
			table, err := u.read(ctx)
			if err != nil {
				failAll(jobs, err)
				return
			}
			u.table = table
		}
		c := driver.Change{Before: u.table, After: u.table.Clone(), Want: min(u.d.cfg.Verify, driver.Light)}
		u.compose(&c, jobs, target)
		if undecided(jobs) == 0 {
			return
		}
		verdicts, err := u.sw.Apply(ctx, c)
		if errors.Is(err, driver.ErrDrift) && verdicts == nil {
			// Nothing was asked. Whether one of our planes has drifted or another one, a look decides.
			if u.table = nil; attempt < maxAttempts {
				continue
			}
		}
		if err == nil {
			u.table = c.After
		} else {
			u.table = nil // to be read
		}
		for _, j := range jobs {
			if !j.done {
				u.judge(j, c, verdicts, err)
			}
		}
		return
	}
}

// compose enters the planes of the jobs into a change; those that have drifted are decided.
func (u *unit) compose(c *driver.Change, jobs []*job, target func(j *job, own circuit.Permutation) circuit.Permutation) {
	for _, j := range jobs {
		if j.done {
			continue
		}
		// A circuit to another plane is nobody's; the move takes it away.
		own, foreign := u.block(u.table, j.p)
		if foreign != nil {
			if j.m.From != nil {
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
		j.made = j.made[:0]
		for r, to := range target(j, own) {
			if to != circuit.Dark && to != own[r] {
				j.made = append(j.made, circuit.Pair{From: r, To: to})
			}
			if to != circuit.Dark {
				to += j.p.first
			}
			c.After[j.p.first+r] = to
		}
		c.Token = max(c.Token, j.m.Token)
	}
}

// judge decides how a change went for one plane.
func (u *unit) judge(j *job, c driver.Change, verdicts []driver.Circuit, err error) {
	n := len(j.p.ports.In)
	var touched, bad int
	var first []string
	level, lit := driver.Token, false
	for _, v := range verdicts {
		r := v.In - j.p.first
		if r < 0 || r >= n {
			continue
		}
		touched++
		if v.Reason != "" || v.Observed != v.Intended {
			j.bad[r] = v.Observed == v.Intended // it is there, and yet not good
			if bad++; bad <= maxExamples {
				first = append(first, u.sentence(j.p, v))
			}
		}
		if v.Intended != circuit.Dark {
			level, lit = min(level, v.Verified), true
		}
	}
	if !lit {
		level = driver.ReadBack // there is no light to see
	}
	j.level = level
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
		if errors.Is(err, driver.ErrUnknownOutcome) {
			for r := range j.bad {
				j.bad[r] = c.Before[j.p.first+r] != c.After[j.p.first+r]
			}
		}
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
// are there: whoever sends earlier loses frames.
func (u *unit) rest(ctx context.Context, jobs []*job) {
	var longest time.Duration
	for _, j := range jobs {
		if !j.done && len(j.made) > 0 && j.level < driver.Status {
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

// probe sends tokens over the circuits that were made, where that is wanted and possible.
func (u *unit) probe(ctx context.Context, jobs []*job) {
	if u.d.cfg.Verify < driver.Token || u.d.cfg.Prober == nil {
		return
	}
	for _, j := range jobs {
		if j.done || len(j.made) == 0 {
			continue
		}
		probing, cancel := context.WithTimeout(ctx, u.d.cfg.ProbeTimeout)
		through, err := u.d.cfg.Prober.Probe(probing, j.p.index, j.made)
		cancel()
		if err == nil && len(through) != len(j.made) {
			err = fmt.Errorf("%d answers for %d circuits", len(through), len(j.made))
		}
		if err != nil {
			j.fail(fmt.Errorf("%w: tokens over the circuits: %w", driver.ErrNotAsIntended, err))
			continue
		}
		j.level = driver.Token
		for i, ok := range through {
			if !ok {
				c := j.made[i]
				j.bad[c.From], j.mute = true, true
				j.fail(fmt.Errorf("%w: no token came from rank %d to rank %d, port %s", driver.ErrNotAsIntended, c.From, c.To, u.egress(j.p.first+c.To)))
			}
		}
	}
}

// settle ends the moves. Where something went or was wrong, it looks at the switch first.
func (u *unit) settle(ctx context.Context, jobs []*job) {
	var health []driver.Health
	var unknown error
	if u.table == nil || slices.ContainsFunc(jobs, func(j *job) bool { return j.ill || j.err != nil }) {
		ctx, cancel := context.WithTimeout(ctx, u.d.cfg.LookTimeout) // the time of the move may be over
		u.table, health, unknown = u.ask(ctx)
		cancel()
	}
	planes := make([]*plane, len(jobs))
	u.d.mu.Lock()
	for i, j := range jobs {
		planes[i] = j.p
		u.end(j, health, unknown)
	}
	u.d.mu.Unlock()
	u.d.notify(planes)
	if u.table != nil {
		u.others()
	}
}

// end enters what a move has come to; Device.mu is held.
func (u *unit) end(j *job, health []driver.Health, unknown error) {
	p := j.p
	if p.observed, p.unknown = nil, unknown; u.table != nil {
		p.observed, p.unknown = u.block(u.table, p)
	}
	p.move, p.verified, p.failure, p.mute, p.ended = nil, j.level, nil, j.mute, time.Now()
	if j.err != nil {
		p.failure = fmt.Errorf("epoch %d: %w", j.m.Epoch, j.err)
	}
	if p.watch = p.unknown; p.watch == nil && health != nil {
		p.watch = u.unfit(p, health)
	}
	for r := range p.suspect {
		p.suspect[r] = j.bad[r] || j.err != nil && p.suspect[r]
	}
}

// others takes over what the change has shown of planes that did not move.
func (u *unit) others() {
	u.update(func(p *plane) {
		observed, foreign := u.block(u.table, p)
		if p.observed.Equal(observed) && foreign == nil {
			return
		}
		p.observed, p.unknown, p.watch = observed, foreign, foreign
	})
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
