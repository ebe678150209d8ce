// Package job finds the iteration of a job in dumps of its flight recorders.
//
// Layer: above shim/flight, on collectives/schedule and plans/iteration/learn, for commands. It plans nothing and reads
// no files.
package job

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lightpath/collectives/schedule"
	"lightpath/plans/iteration/learn"
	"lightpath/plans/iteration/trace"
	"lightpath/shim/flight"
)

// ErrDumps is wrapped by errors about dumps of which no trace can be made.
var ErrDumps = errors.New("no trace of these dumps")

// Found is the iteration of a job.
type Found struct {
	*learn.Found
	// Omitted counts operations without a place in a trace: groups of sends and receives, whose peers a recorder does not
	// keep, one-sided calls, and operations that have not completed.
	Omitted int
}

// process names a process of the job.
type process struct {
	host string
	pid  int
}

// communicator is one communicator with its dumps by rank.
type communicator struct {
	name  string
	ranks int
	dumps []*flight.Dump // nil where there is none
}

// Find makes the trace of dumps. The largest communicator numbers the ranks of the job; the ranks of smaller ones are
// found by their processes, so these need the dumps of all their ranks. Communicators of different ranks that make the
// same calls become one with several groups.
func Find(dumps []*flight.Dump) (*Found, error) {
	all, err := gather(dumps)
	if err != nil {
		return nil, err
	}
	world := all[0]
	rank := map[process]int{}
	for r, d := range world.dumps {
		if d != nil {
			rank[process{d.Host, d.PID}] = r
		}
	}
	var comms []trace.Communicator
	var run []learn.Record
	seen := map[string]int{} // calls of a communicator -> its index
	out := &Found{}
	for _, c := range all {
		group, err := c.group(world, rank)
		if err != nil {
			return nil, err
		}
		records, omitted := c.records(len(comms))
		out.Omitted += omitted
		if len(records) == 0 {
			continue
		}
		key := signature(records)
		if at, ok := seen[key]; ok && disjoint(comms[at].Groups, group) {
			comms[at].Groups = append(comms[at].Groups, group)
			continue
		}
		seen[key] = len(comms)
		comms = append(comms, trace.Communicator{Name: c.name, Groups: [][]int{group}})
		run = append(run, records...)
	}
	out.Found, err = learn.Find(world.ranks, comms, run)
	return out, err
}

// gather sorts dumps by communicator, the largest first. Of several dumps of a rank it takes the latest.
func gather(dumps []*flight.Dump) ([]*communicator, error) {
	known := map[string]*communicator{}
	var all []*communicator
	for _, d := range dumps {
		c := known[d.Comm]
		if c == nil {
			c = &communicator{d.Comm, d.Ranks, make([]*flight.Dump, d.Ranks)}
			known[d.Comm] = c
			all = append(all, c)
		}
		if d.Ranks != c.ranks || d.Rank >= c.ranks {
			return nil, fmt.Errorf("%w: communicator %s has %d ranks, and rank %d of %d", ErrDumps, d.Comm, c.ranks, d.Rank,
				d.Ranks)
		}
		if old := c.dumps[d.Rank]; old == nil || old.UnixTime < d.UnixTime {
			c.dumps[d.Rank] = d
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrDumps)
	}
	slices.SortStableFunc(all, func(a, b *communicator) int { return b.ranks - a.ranks })
	return all, nil
}

// group returns the ranks of the job of a communicator's ranks.
func (c *communicator) group(world *communicator, rank map[process]int) ([]int, error) {
	group := make([]int, c.ranks)
	for r, d := range c.dumps {
		switch {
		case c.ranks == world.ranks && (c == world || d == nil):
			group[r] = r
			continue
		case d == nil:
			return nil, fmt.Errorf("%w: communicator %s: the dump of rank %d is missing", ErrDumps, c.name, r)
		}
		at, ok := rank[process{d.Host, d.PID}]
		if !ok {
			return nil, fmt.Errorf("%w: communicator %s: rank %d (%s, process %d) has no dump of communicator %s", ErrDumps,
				c.name, r, d.Host, d.PID, world.name)
		}
		group[r] = at
	}
	return group, nil
}

// records returns the calls of a communicator as its lowest rank with a dump made them, in us of Unix time.
func (c *communicator) records(index int) (records []learn.Record, omitted int) {
	d := c.dumps[slices.IndexFunc(c.dumps, func(d *flight.Dump) bool { return d != nil })]
	offset := float64(d.UnixTime-d.Time) / 1e3
	for i := range d.Operations {
		o := &d.Operations[i]
		collective, err := schedule.ParseCollective(strings.ToLower(o.Call))
		if err != nil || o.Seq == 0 || o.Outcome != flight.Completed || o.Algorithm == "" {
			omitted++
			continue
		}
		call := trace.Call{Communicator: index, Collective: collective.String(), Algorithm: o.Algorithm,
			Bytes: float64(o.Bytes)}
		if per := collective.BlockBytes(1, c.ranks); per > 0 {
			call.Bytes = math.Round(float64(o.Bytes) / per)
		}
		if collective.Rooted() {
			if _, text, ok := strings.Cut(o.Detail, "root "); ok {
				_, _ = fmt.Sscan(text, &call.Root) // without a number: root 0
			}
		}
		records = append(records, learn.Record{Call: call, StartUS: offset + float64(o.Arrived)/1e3,
			EndUS: offset + float64(o.Ended)/1e3})
	}
	return records, omitted
}

// signature describes the calls of a communicator, without its index and times.
func signature(records []learn.Record) string {
	var b strings.Builder
	for i := range records {
		fmt.Fprintf(&b, "%s %d;", records[i].Kind(), records[i].Root)
	}
	return b.String()
}

func disjoint(groups [][]int, group []int) bool {
	for _, g := range groups {
		if len(g) != len(group) || slices.ContainsFunc(g, func(r int) bool { return slices.Contains(group, r) }) {
			return false
		}
	}
	return true
}
