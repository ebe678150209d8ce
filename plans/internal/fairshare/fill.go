package fairshare

import "lightpath/internal/heap"

// filling is the state of one progressive filling; its memory serves the next one.
type filling struct {
	number int
	groups []Group
	shared []sharedLink
	index  []int32         // by link: its place in shared, where the link's mark is this filling's
	levels heap.Heap[item] // shared links by the rate at which they are full
	limits heap.Heap[item] // groups by the rate that they cannot exceed
	done   []bool          // by group
	rounds int             // that solve has taken
}

// sharedLink is a link with two groups or more.
type sharedLink struct {
	link  int32
	left  float64 // capacity that no finished group uses
	flows float64 // of groups that are not finished
	open  int     // such groups
}

func (f *filling) begin() {
	f.number++
	f.groups, f.shared = f.groups[:0], f.shared[:0]
	f.levels, f.limits = f.levels[:0], f.limits[:0]
}

func (f *filling) addLink(n *Network, id int32) {
	if f.index == nil {
		f.index = make([]int32, len(n.links))
	}
	l := &n.links[id]
	s := sharedLink{link: id, left: l.capacity, open: len(l.users)}
	for _, u := range l.users {
		s.flows += n.groups[u.group].uses[u.slot].Flows
	}
	f.index[id] = int32(len(f.shared))
	f.levels.Push(item{s.left / s.flows, int32(len(f.shared))})
	f.shared = append(f.shared, s)
}

// solve raises the rates of all groups alike, and finishes a group when its limit or a full link stops it. The rate at
// which a link is full only rises while groups finish. So an old value in the heap is a lower bound, and is updated
// when it is taken off.
//
// Every round takes an item off a heap. A link comes back only if one of its groups has finished since. So there are at
// most as many rounds as groups, shared links and uses of shared links together, for any rounding.
func (n *Network) solve(changed func(Group, float64)) {
	f := &n.fill
	for len(f.done) < len(n.groups) {
		f.done = append(f.done, false)
	}
	for _, g := range f.groups {
		f.done[g] = false
	}
	f.rounds = 0
	for left := len(f.groups); left > 0; f.rounds++ {
		if len(f.levels) > 0 && (len(f.limits) == 0 || f.levels[0].key < f.limits[0].key) {
			top := f.levels.Pop()
			s := &f.shared[top.id]
			if s.open == 0 {
				continue
			}
			if now := s.level(); now > top.key {
				f.levels.Push(item{now, top.id})
				continue
			}
			for _, u := range n.links[s.link].users {
				if !f.done[u.group] {
					n.finish(u.group, top.key, changed)
					left--
				}
			}
			continue
		}
		top := f.limits.Pop()
		if g := Group(top.id); !f.done[g] {
			n.finish(g, top.key, changed)
			left--
		}
	}
}

// level returns the rate at which the link is full.
func (s *sharedLink) level() float64 { return max(0, s.left) / s.flows }

// finish fixes the rate of a group.
func (n *Network) finish(g Group, rate float64, changed func(Group, float64)) {
	f, s := &n.fill, &n.groups[g]
	f.done[g] = true
	for _, u := range s.uses {
		if l := &n.links[u.Link]; l.mark == f.number && len(l.users) > 1 {
			t := &f.shared[f.index[u.Link]]
			t.left -= rate * u.Flows
			t.flows -= u.Flows
			t.open--
		}
	}
	if rate != s.rate {
		s.rate = rate
		changed(g, rate)
	}
}

// item is an entry of a heap.
type item struct {
	key float64
	id  int32
}

// Before implements [heap.Ordered].
func (a item) Before(b item) bool { return a.key < b.key }
