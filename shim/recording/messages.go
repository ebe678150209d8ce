package recording

import (
	"math"
	"slices"

	"lightpath/plans/iteration/trace"
	"lightpath/shim/calls"
)

// messages joins sends and receives. A group of one rank is a unit, as is a send or receive without a group. Units between
// which a message goes belong together: they are one event.
type messages struct {
	units []unit
	open  map[message]*pair
	order []*pair // by first sight
}

type unit struct {
	comm   *communicator
	at     span
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

func (m *messages) unit(comm *communicator, at span) int {
	m.units = append(m.units, unit{comm: comm, at: at, parent: len(m.units)})
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
		if e := events[root]; e == nil {
			events[root] = &event{call: callOf(flows[root]), number: -1, start: m.units[u].at.begin, end: m.units[u].at.end}
		}
		e, at := events[root], m.units[u].at
		e.start, e.end, e.stream = max(e.start, at.begin), max(e.end, at.end), e.stream || m.units[u].stream
	}
	for root, e := range events {
		comm := m.units[root].comm
		comm.events = append(comm.events, *e)
	}
	return left
}

// callOf returns the call of flows. A trace has one size for all of them: the largest.
func callOf(flows map[[2]int]float64) trace.Call {
	c := trace.Call{}
	for f, bytes := range flows {
		c.Flows = append(c.Flows, f)
		c.Bytes = math.Max(c.Bytes, bytes)
	}
	slices.SortFunc(c.Flows, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return c
}
