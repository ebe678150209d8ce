package fairshare

import (
	"fmt"
	"math"
)

// Use is the number of flows of a group on a link, which may be a fraction.
type Use struct {
	Link  int32
	Flows float64
}

// Group is the number of a group of flows of a [Network].
type Group int32

// Network holds links and the groups that use them. It is not safe for concurrent use.
type Network struct {
	links  []link
	groups []group
	unused []Group // numbers to use again

	changedLinks  []int32
	changedGroups []Group
	fill          filling
}

type link struct {
	capacity float64
	users    []user
	mark     int // of the last filling that has seen it
}

// user is the use number slot of a group.
type user struct {
	group Group
	slot  int32
}

type group struct {
	uses  []Use
	place []int32 // where in the users of its link each use stands
	limit float64
	rate  float64
	mark  int
	alive bool
}

// New returns a network with links of the given capacities, numbered from 0.
func New(capacity []float64) *Network {
	n := &Network{links: make([]link, len(capacity))}
	for l, c := range capacity {
		n.checkCapacity(l, c)
		n.links[l].capacity = c
	}
	return n
}

func (n *Network) checkCapacity(l int, c float64) {
	if c < 0 || math.IsNaN(c) || math.IsInf(c, 0) {
		panic(fmt.Sprintf("fairshare: link %d: capacity %v", l, c))
	}
}

// Add adds a group whose flows have at most the given rate, and returns its number. A link may
// occur only once in uses, with a positive number of flows; uses must not change until the group is removed. Rates
// change only in [Network.Update].
func (n *Network) Add(limit float64, uses []Use) Group {
	var g Group
	if k := len(n.unused); k > 0 {
		g, n.unused = n.unused[k-1], n.unused[:k-1]
	} else {
		g = Group(len(n.groups))
		n.groups = append(n.groups, group{})
	}
	s := &n.groups[g]
	s.uses, s.limit, s.rate, s.alive = uses, limit, 0, true
	s.place = s.place[:0]
	for k, u := range uses {
		l := &n.links[u.Link]
		s.place = append(s.place, int32(len(l.users)))
		l.users = append(l.users, user{g, int32(k)})
	}
	n.changedGroups = append(n.changedGroups, g)
	return g
}

// Remove removes a group. Its number may be given to another one by the next Add.
func (n *Network) Remove(g Group) {
	s := &n.groups[g]
	for k, u := range s.uses {
		l := &n.links[u.Link]
		last := l.users[len(l.users)-1]
		l.users[s.place[k]] = last
		n.groups[last.group].place[last.slot] = s.place[k]
		l.users = l.users[:len(l.users)-1]
		if len(l.users) > 0 {
			n.changedLinks = append(n.changedLinks, u.Link)
		}
	}
	s.uses, s.alive = nil, false
	n.unused = append(n.unused, g)
}

// SetLimit changes the limit of a group's rate.
func (n *Network) SetLimit(g Group, limit float64) {
	n.groups[g].limit = limit
	n.changedGroups = append(n.changedGroups, g)
}

// Update makes the rates fair again after changes, and calls changed for every group whose rate differs from before.
// changed must not call the network.
func (n *Network) Update(changed func(g Group, rate float64)) {
	f := &n.fill
	f.begin()
	for _, g := range n.changedGroups {
		if n.groups[g].alive {
			n.reach(g)
		}
	}
	for _, l := range n.changedLinks {
		for _, u := range n.links[l].users {
			n.reach(u.group)
		}
	}
	n.changedGroups, n.changedLinks = n.changedGroups[:0], n.changedLinks[:0]
	for k := 0; k < len(f.groups); k++ {
		n.spread(f.groups[k])
	}
	n.solve(changed)
}

// reach adds a group to this filling.
func (n *Network) reach(g Group) {
	if s := &n.groups[g]; s.mark != n.fill.number {
		s.mark = n.fill.number
		n.fill.groups = append(n.fill.groups, g)
	}
}

// spread adds the groups that share a link with g. A link that only g uses limits only g.
func (n *Network) spread(g Group) {
	f := &n.fill
	s := &n.groups[g]
	limit := s.limit
	for _, u := range s.uses {
		l := &n.links[u.Link]
		if len(l.users) == 1 {
			limit = min(limit, l.capacity/u.Flows)
			continue
		}
		if l.mark == f.number {
			continue
		}
		l.mark = f.number
		f.addLink(n, u.Link)
		for _, v := range l.users {
			n.reach(v.group)
		}
	}
	f.limits.Push(item{limit, int32(g)})
}
