package place

import (
	"math/bits"
	"slices"
)

// Pool records which GPUs of a cluster are idle. Not safe for concurrent use.
type Pool struct {
	shape Shape
	// busy has a bit for every GPU of a server in use.
	busy []uint64
	// idle is, by level and domain, the number of servers whose GPUs are all idle.
	idle [][]int
	gpus int // idle ones
}

// Allocation is the GPUs of a job: whole servers, in ascending order, or some GPUs of one.
type Allocation struct {
	Servers []int32
	// GPUs has a bit for each GPU of the only server that is held; 0: whole servers are.
	GPUs uint64
}

// NewPool returns a pool with all GPUs of the shape idle.
func NewPool(shape Shape) *Pool {
	p := &Pool{shape: shape, busy: make([]uint64, shape.Servers()), gpus: shape.gpus()}
	for level := range shape.Nest {
		p.idle = append(p.idle, slices.Repeat([]int{shape.Size(level)}, shape.Domains(level)))
	}
	return p
}

// Idle returns how many GPUs are idle.
func (p *Pool) Idle() int { return p.gpus }

// Part takes GPUs, fewer than a server has, from the server with the fewest idle GPUs that suffice.
func (p *Pool) Part(gpus int) (Allocation, bool) {
	best, least := -1, 0
	for s, busy := range p.busy {
		idle := p.shape.ServerGPUs - bits.OnesCount64(busy)
		if idle < gpus {
			continue
		}
		// An idle server is broken up last, and then where its leaf and pod have the fewest.
		key := idle
		if busy == 0 {
			key += p.idle[Leaf][p.shape.Of(Leaf, int32(s))] << 8
			key += p.idle[Pod][p.shape.Of(Pod, int32(s))] << 20
		}
		if best < 0 || key < least {
			best, least = s, key
		}
	}
	if best < 0 {
		return Allocation{}, false
	}
	a := Allocation{Servers: []int32{int32(best)}}
	for g, left := 0, gpus; left > 0; g++ {
		if bit := uint64(1) << g; p.busy[best]&bit == 0 {
			a.GPUs |= bit
			left--
		}
	}
	if p.busy[best] == 0 {
		p.count(int32(best), -1)
	}
	p.busy[best] |= a.GPUs
	p.gpus -= gpus
	return a, true
}

// Whole takes whole servers near each other: in one leaf if possible, else in one pod, and so on. It uses the
// domain with the fewest idle servers that suffice (principle 1 and section A.4). Pods get multiples of unit
// servers, so that groups of that size stay inside one.
func (p *Pool) Whole(servers, unit int) (Allocation, bool) {
	for level := range p.shape.Nest {
		best := -1
		for d, idle := range p.idle[level] {
			if idle >= servers && (best < 0 || idle < p.idle[level][best]) && p.capacity(level, d, unit) >= servers {
				best = d
			}
		}
		if best >= 0 {
			return p.In(level, best, servers, unit)
		}
	}
	return Allocation{}, false
}

// In takes so many whole servers from one domain of a level, in groups as [Pool.Whole] does.
func (p *Pool) In(level, domain, servers, unit int) (Allocation, bool) {
	if p.capacity(level, domain, unit) < servers {
		return Allocation{}, false
	}
	a := Allocation{Servers: p.take(level, domain, servers, unit, make([]int32, 0, servers))}
	slices.Sort(a.Servers)
	p.gpus -= servers * p.shape.ServerGPUs
	return a, true
}

// Fits reports whether enough servers, in groups of unit inside a pod, are idle.
func (p *Pool) Fits(servers, unit int) bool {
	top := len(p.shape.Nest) - 1
	return p.capacity(top, 0, unit) >= servers
}

// Release returns the GPUs of an allocation to the pool.
func (p *Pool) Release(a Allocation) {
	if a.GPUs != 0 {
		s := a.Servers[0]
		if p.busy[s] &^= a.GPUs; p.busy[s] == 0 {
			p.count(s, 1)
		}
		p.gpus += bits.OnesCount64(a.GPUs)
		return
	}
	for _, s := range a.Servers {
		p.busy[s] = 0
		p.count(s, 1)
	}
	p.gpus += len(a.Servers) * p.shape.ServerGPUs
}

// count adds to the idle servers of all domains that contain s.
func (p *Pool) count(s int32, by int) {
	for level := range p.idle {
		p.idle[level][p.shape.Of(level, s)] += by
	}
}

// capacity returns how many servers a domain can give to groups of unit servers, each inside a pod.
func (p *Pool) capacity(level, domain, unit int) int {
	switch {
	case level < Pod || unit == 1:
		return p.idle[level][domain]
	case level == Pod:
		return p.idle[Pod][domain] / unit * unit
	}
	sum := 0
	for c := range p.shape.Nest[level] {
		sum += p.capacity(level-1, domain*p.shape.Nest[level]+c, unit)
	}
	return sum
}

// take takes servers from a domain that has them.
func (p *Pool) take(level, domain, servers, unit int, to []int32) []int32 {
	if level == Leaf {
		all := uint64(1)<<p.shape.ServerGPUs - 1
		if p.shape.ServerGPUs == maxServerGPUs {
			all = ^uint64(0)
		}
		for s := int32(domain * p.shape.Nest[Leaf]); servers > 0; s++ {
			if p.busy[s] == 0 {
				p.busy[s] = all
				p.count(s, -1)
				to = append(to, s)
				servers--
			}
		}
		return to
	}
	first := domain * p.shape.Nest[level]
	parts := make([]part, p.shape.Nest[level])
	for c := range parts {
		parts[c] = part{first + c, p.idle[level-1][first+c], p.capacity(level-1, first+c, unit)}
	}
	for _, c := range cover(parts, servers) {
		n := min(servers, c.gives)
		to = p.take(level-1, c.domain, n, unit, to)
		servers -= n
	}
	return to
}
