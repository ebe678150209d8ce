package cluster

import (
	"slices"

	"lightpath/plans/circuit"
	"lightpath/plans/lumos"
	"lightpath/plans/lumos/place"
)

// optical is a fabric with an optical core. Flows between pods use the spines that the logical topology gives
// their leaves, over circuits that no other job uses. Flows inside a pod get spines from a controller, or
// choose as on a Clos network. A leaf and a spine are joined by tau links, with one shared capacity.
type optical struct {
	*router
	fabric lumos.Fabric
	shape  place.Shape
	rate   float64
	core   *lumos.Core
	need   *lumos.Requirement
	tenant map[int]*tenant
	// central: a controller that knows all flows gives those inside pods their spines.
	central bool
	stats   Rewiring
	flows   []place.Flow
}

// tenant is a running job.
type tenant struct {
	arrangement *place.Arrangement
	pairs       []place.Pair
	spines      [][]int32 // of each pair: that of each of its links
	// inside are the spines of flows inside pods, by phase, in the order of flows.
	inside [place.NumPhases][]int32
}

func newOptical(f *Fabric, seed uint64) (*optical, error) {
	o := &optical{fabric: f.Core(), shape: f.Shape(), rate: f.rate(), tenant: map[int]*tenant{},
		central: f.Routing == Central}
	var err error
	if o.core, err = lumos.NewCore(o.fabric); err != nil {
		return nil, err
	}
	if o.need, err = lumos.NewRequirement(o.fabric); err != nil {
		return nil, err
	}
	o.router = newRouter(f, 2*o.links(), seed)
	return o, nil
}

// links returns the pairs of leaf and spine: link a H + h leads up from leaf a, the same number of
// the second half down to it.
func (o *optical) links() int { return o.fabric.Leaves() * o.fabric.Spines() }

func (o *optical) up(leaf, spine int32) int32 { return leaf*int32(o.fabric.Spines()) + spine }

func (o *optical) down(leaf, spine int32) int32 { return int32(o.links()) + o.up(leaf, spine) }

func (o *optical) capacities() []float64 {
	return slices.Repeat([]float64{o.rate * float64(o.fabric.Tau)}, 2*o.links())
}

func (o *optical) admit(job int, a *place.Arrangement, shares place.Volume) (admission, error) {
	t := &tenant{arrangement: a}
	o.tenant[job] = t
	done, err := o.connect(job, t, shares)
	if err != nil {
		return done, err
	}
	done.paths = o.paths(t)
	o.settle(job, done.paths, shares)
	return done, nil
}

func (o *optical) flowsOf(a *place.Arrangement, phase place.Phase) []place.Flow {
	o.flows = a.Flows(o.shape, phase, o.flows[:0])
	return o.flows
}

// connect assigns a job its links between pods.
func (o *optical) connect(job int, t *tenant, shares place.Volume) (admission, error) {
	var done admission
	r, _, err := t.arrangement.Fitted(o.shape, shares)
	if err != nil || len(r.Pairs) == 0 {
		return done, err
	}
	shared := t.arrangement.Requirement(o.shape).Links() - r.Links()
	t.pairs, t.spines = r.Pairs, make([][]int32, len(r.Pairs))
	for _, p := range r.Pairs {
		if err := o.need.Add(int(p.A), int(p.B), p.Links); err != nil {
			return done, err
		}
	}
	before := o.core.Configuration()
	change, err := o.core.Update(o.need, false)
	if err != nil {
		return done, err
	}
	o.stats.add(change, shared, o.core)
	if change.Made > 0 {
		done.dark = append(done.dark, job)
	}
	moved := o.follow(job)
	done.dark = append(done.dark, o.interrupted(before, job)...)
	done.moved = map[int]paths{}
	for _, m := range moved {
		old := o.jobs[m]
		o.router.release(m)
		done.moved[m] = o.paths(o.tenant[m])
		done.dark = append(done.dark, m)
		o.settle(m, done.moved[m], old.shares)
	}
	return done, nil
}

// freeLinks holds, for each pair of pods, the links of the logical topology that no job has taken.
type freeLinks map[[2]int32][]spineLinks

// spineLinks is a number of links at a spine.
type spineLinks struct{ spine, links int32 }

// linksOf returns all links of a logical topology.
func linksOf(l *lumos.Logical) freeLinks {
	free := freeLinks{}
	for h, share := range l.Share {
		for a := range share.Size() {
			for _, c := range share.Row(a) {
				if a < c.Col {
					at := [2]int32{int32(a), int32(c.Col)}
					free[at] = append(free[at], spineLinks{int32(h), int32(c.Count)})
				}
			}
		}
	}
	return free
}

// take takes a link between two pods at a spine, if there is one.
func (free freeLinks) take(pods [2]int32, spine int32) bool {
	for i, f := range free[pods] {
		if f.links > 0 && f.spine == spine {
			free[pods][i].links--
			return true
		}
	}
	return false
}

// any takes a link between two pods, and returns its spine.
func (free freeLinks) any(pods [2]int32) int32 {
	for i, f := range free[pods] {
		if f.links > 0 {
			free[pods][i].links--
			return f.spine
		}
	}
	panic("cluster: the logical topology has fewer links than the requirement")
}

// follow sets the spines of all jobs' links to those of the logical topology. It returns the jobs, other than the
// starting one, with changed spines.
func (o *optical) follow(starting int) (moved []int) {
	free := linksOf(o.core.Logical())
	// What jobs have and may keep goes first.
	moved = []int{starting}
	for _, job := range o.running(starting) {
		t, kept := o.tenant[job], true
		for i, p := range t.pairs {
			for k, h := range t.spines[i] {
				if !free.take([2]int32{p.A, p.B}, h) {
					t.spines[i][k] = -1
					kept = false
				}
			}
		}
		if !kept {
			moved = append(moved, job)
		}
	}
	for _, job := range moved {
		t := o.tenant[job]
		for i, p := range t.pairs {
			for len(t.spines[i]) < p.Links {
				t.spines[i] = append(t.spines[i], -1)
			}
			for k, h := range t.spines[i] {
				if h < 0 {
					t.spines[i][k] = free.any([2]int32{p.A, p.B})
				}
			}
		}
	}
	return moved[1:]
}

// running returns the running jobs in order, without the starting one.
func (o *optical) running(starting int) []int {
	var jobs []int
	for job := range o.tenant {
		if job != starting {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return jobs
}

// interrupted returns the jobs, other than the starting one, that lose circuits: between two pods by one spine, fewer
// circuits stay in place than running jobs use.
func (o *optical) interrupted(before *lumos.Configuration, starting int) (jobs []int) {
	after := o.core.Configuration()
	type between struct{ h, i, j int }
	gone, left := map[between]bool{}, map[between]int{}
	for h := range before.Even {
		for k, was := range before.Even[h] {
			for i, j := range was {
				at := between{h, min(i, j), max(i, j)}
				switch {
				case j == circuit.Dark:
				case after.Even[h][k][i] == j:
					left[at]++
				default:
					gone[at] = true
				}
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return slices.DeleteFunc(o.running(starting), func(job int) bool {
		alone := true
		t := o.tenant[job]
		for i, p := range t.pairs {
			for _, h := range t.spines[i] {
				at := between{int(h), o.fabric.Pod(int(p.A)), o.fabric.Pod(int(p.B))}
				if gone[at] {
					left[at]--
					alone = alone && left[at] >= 0
				}
			}
		}
		return alone
	})
}

// paths returns the paths of a job: its links between pods, which the flows of a pair of leaves take by turns, and
// spines inside pods. With central control the spines change with the links; else they stay.
func (o *optical) paths(t *tenant) (p paths) {
	index := map[[2]int32]int{}
	for i, pair := range t.pairs {
		index[[2]int32{pair.A, pair.B}] = i
	}
	for phase := range place.NumPhases {
		var inside, between []hop
		turn := map[[2]int32]int{}
		most := 1
		for _, f := range o.flowsOf(t.arrangement, phase) {
			h := hop{from: f.From / int32(o.fabric.KLeaf), to: f.To / int32(o.fabric.KLeaf), share: f.Share}
			switch {
			case h.from == h.to:
			case o.fabric.Pod(int(h.from)) == o.fabric.Pod(int(h.to)):
				inside = append(inside, h)
			default:
				spines := t.spines[index[[2]int32{min(h.from, h.to), max(h.from, h.to)}]]
				k := turn[[2]int32{h.from, h.to}]
				turn[[2]int32{h.from, h.to}]++
				h.spine = spines[k%len(spines)]
				o.take(h)
				between = append(between, h)
				most = max(most, k/len(spines)+1)
			}
		}
		o.route(t, phase, inside, between, most)
		p[phase] = path{o.phase(), o.rate / float64(most)}
	}
	return p
}

func (o *optical) release(job int) {
	t := o.tenant[job]
	for _, p := range t.pairs {
		if err := o.need.Add(int(p.A), int(p.B), -p.Links); err != nil {
			panic(err) // a job gives back what it got
		}
	}
	delete(o.tenant, job)
	o.router.release(job)
}

// Rewiring counts how often, and how much of, a core was rewired.
type Rewiring struct {
	Times  int     // starts of jobs that need links between pods
	Links  int     // that the core can have
	Needed int     // a bound from below on the links to make anew, over all times
	Shared int     // links that jobs did without, sharing others
	Ratio  float64 // of links made anew per time, averaged
	// Contended counts times after which some leaf had more than tau links by one spine.
	Contended int
	sum       float64
}

func (r *Rewiring) add(c lumos.Change, shared int, core *lumos.Core) {
	r.Times++
	r.Links = c.Links
	r.Needed += c.Needed
	r.Shared += shared
	r.sum += c.Ratio()
	r.Ratio = r.sum / float64(r.Times)
	if core.Logical().Contention() > 1 {
		r.Contended++
	}
}
