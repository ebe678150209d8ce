package recording

import (
	"cmp"
	"fmt"
	"slices"

	"lightpath/plans/iteration/trace"
	"lightpath/shim/calls"
)

// messages joins sends and receives. A group of one rank is a unit, as is a send or receive without a group. Units
// between which a message goes belong together: they are one event.
type messages struct {
	units []unit
	open  map[message]*pair
	order []*pair // by first sight
}

type unit struct {
	comm   *communicator
	part   part
	stream bool
	parent int // union-find
}

// message names the number-th message between two ranks of a communicator.
type message struct {
	comm     *communicator
	from, to int
	number   uint64
}

// pair is a send with its receive.
type pair struct {
	message
	send, recv int // units, -1: not seen
	bytes      float64
}

func newMessages() *messages { return &messages{open: map[message]*pair{}} }

func (m *messages) unit(comm *communicator, p part) int {
	m.units = append(m.units, unit{comm: comm, part: p, parent: len(m.units)})
	return len(m.units) - 1
}

func (m *messages) add(comm *communicator, rank int, c *Call, unit int) {
	key := message{comm, rank, c.Peer, c.Number}
	if c.Kind == calls.Recv {
		key.from, key.to = c.Peer, rank
	}
	m.units[unit].stream = m.units[unit].stream || c.Stream
	p := m.open[key]
	if p == nil {
		p = &pair{key, -1, -1, c.Bytes()}
		m.open[key] = p
		m.order = append(m.order, p)
	}
	if c.Kind == calls.Recv {
		m.units[unit].part.receives = true
		p.recv = unit
	} else {
		p.send, p.bytes = unit, c.Bytes()
	}
}

func (m *messages) find(u int) int {
	for m.units[u].parent != u {
		m.units[u].parent = m.units[m.units[u].parent].parent
		u = m.units[u].parent
	}
	return u
}

// join makes the events. It returns how many messages have only one end.
func (m *messages) join() (left int) {
	for _, p := range m.order {
		if p.send < 0 || p.recv < 0 {
			left++
			continue
		}
		m.units[m.find(p.recv)].parent = m.find(p.send)
	}
	flows := map[int]map[[2]int]float64{}
	for _, p := range m.order {
		if p.send < 0 || p.recv < 0 || p.from == p.to {
			continue
		}
		root := m.find(p.send)
		if flows[root] == nil {
			flows[root] = map[[2]int]float64{}
		}
		flows[root][[2]int{p.from, p.to}] += p.bytes
	}
	events := map[int]*event{}
	for u := range m.units {
		root := m.find(u)
		if flows[root] == nil {
			continue
		}
		e := events[root]
		if e == nil {
			e = &event{number: -1}
			e.call.SetFlows(flows[root])
			events[root] = e
		}
		e.stream = e.stream || m.units[u].stream
		e.add(m.units[u].part)
	}
	for root, e := range events {
		comm := m.units[root].comm
		comm.events = append(comm.events, *e)
	}
	return left
}

// sideBySide joins messages of a communicator between disjoint sets of ranks that exchange the same sizes, such as
// those of pipelines of several replicas: the n-th of each set are one call.
func sideBySide(events []event) []event {
	var lanes []*lane
	known := map[string]*lane{}
	var out []event
	for _, e := range events {
		if e.call.Flows == nil {
			out = append(out, e)
			continue
		}
		ranks := ranksOf(&e)
		key := fmt.Sprint(ranks)
		if known[key] == nil {
			known[key] = &lane{ranks: ranks}
			lanes = append(lanes, known[key])
		}
		known[key].events = append(known[key].events, e)
	}
	var joined []*lane
	for _, l := range lanes {
		if at := slices.IndexFunc(joined, func(j *lane) bool { return j.fits(l) }); at >= 0 {
			joined[at].join(l)
		} else {
			joined = append(joined, l)
		}
	}
	for _, l := range joined {
		out = append(out, l.events...)
	}
	slices.SortStableFunc(out, func(a, b event) int { return cmp.Compare(a.start, b.start) })
	return out
}

// lane is what a set of ranks exchanges.
type lane struct {
	ranks  []int
	events []event
}

func ranksOf(e *event) []int {
	ranks := flat(e)
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// fits reports whether o is of other ranks and of the same sizes.
func (l *lane) fits(o *lane) bool {
	n := min(len(l.events), len(o.events))
	if most := max(len(l.events), len(o.events)); n < most-most/10 {
		return false
	}
	if slices.ContainsFunc(o.ranks, func(r int) bool { _, found := slices.BinarySearch(l.ranks, r); return found }) {
		return false
	}
	return slices.EqualFunc(l.events[len(l.events)-n:], o.events[len(o.events)-n:], func(a, b event) bool {
		return a.call.Bytes == b.call.Bytes
	})
}

// join adds o, as many events as both have, from the end.
func (l *lane) join(o *lane) {
	n := min(len(l.events), len(o.events))
	l.events, o.events = l.events[len(l.events)-n:], o.events[len(o.events)-n:]
	for i := range l.events {
		a, b := &l.events[i], &o.events[i]
		a.join(b)
		flows := map[[2]int]float64{}
		for _, c := range []*trace.Call{&a.call, &b.call} {
			for k, f := range c.Flows {
				flows[f] = c.BytesOf(k)
			}
		}
		a.call.SetFlows(flows)
	}
	l.ranks = append(l.ranks, o.ranks...)
	slices.Sort(l.ranks)
}
