package planner

import (
	"context"
	"math"
	"slices"

	"lightpath/plans/circuit"
)

// table holds the times of a model's pieces in states: settings of all planes. If an exact time needs a search for
// routes, there are two times, an attained one and a floor. When a path needs the piece, searches bring them together,
// tier by tier.
type table struct {
	m      *model
	server *server
	pieces []piece
	kinds  []*piece
	states [][]circuit.Permutation
	us     [][]float64 // [kind][state]: attained; +Inf where nothing is known
	floor  [][]float64 // [kind][state]: no offer takes less
	tier   [][]uint8   // [kind][state]: searches made, or closed; nil row: all are closed
	known  int         // states that are measured; of the others it is known what they serve direct
	flows  int         // of all kinds
	limit  int64       // work left, as flow counts it
	stop   func() bool
	found  map[[2]int]*joint // by kind and state: the joint transmission that takes us, if one does
	keep   int               // hops of routes that may still be kept
	listed [][2]int          // buffer of flowsOf
}

// keptHops bounds the hops of the routes that a table stores. A time whose routes do not fit is dropped: a plan with so
// many routes is of little use.
const keptHops = 2 << 20

// finalLooks is the number of promising choices whose times get a first search when the work is spent.
const finalLooks = 2

// closed is the tier of times that need no more search: floor and us agree.
const closed = uint8(len(flowTiers))

// measureWork bounds the measurements, in flows times planes: well under a second. With less effort, the bound is one
// flow per measureShare nanoseconds of effort.
const (
	measureWork  = 5e7
	measureShare = 10
)

// workShare is the effort over the work of searches for routes: a unit of that takes two to
// four nanoseconds, and harvest may have to look at what static finds.
const workShare = 4

// newTable measures pieces on states, in order. Beyond measureWork it measures only the pieces that states serve
// direct.
func newTable(ctx context.Context, o Options, s *server, pieces []piece, states [][]circuit.Permutation) *table {
	t := &table{m: s.m, server: s, pieces: pieces, states: states, limit: int64(o.Effort) / workShare,
		found: map[[2]int]*joint{}, keep: keptHops}
	t.stop = func() bool { return ctx.Err() != nil }
	t.findKinds()
	t.us, t.floor, t.tier = make([][]float64, len(t.kinds)), make([][]float64, len(t.kinds)), make([][]uint8, len(t.kinds))
	for k := range t.us {
		t.us[k] = make([]float64, len(states))
		t.floor[k] = t.us[k] // until they differ somewhere
	}
	for _, pc := range t.kinds {
		t.flows += t.m.flowCount(&pc.step)
	}
	t.measureUpTo(min(measureWork, int(o.Effort)/measureShare))
	for c := t.known; c < len(states); c++ {
		t.measureDirect(c)
	}
	return t
}

// measureUpTo measures states, at least one, until the given work is spent or the time is over.
func (t *table) measureUpTo(work int) {
	for ; t.known < len(t.states) && work >= 0 && (t.known == 0 || !t.stop()); t.known++ {
		work -= t.measure(t.known)
	}
}

// findKinds numbers the pieces by kind: equal flows and bytes have equal numbers.
func (t *table) findKinds() {
	type key struct {
		digest uint64
		bytes  float64
	}
	seen := map[key][]int{}
	for i := range t.pieces {
		pc := &t.pieces[i]
		k := key{pc.digest(), pc.bytes}
		pc.kind = -1
		for _, q := range seen[k] {
			if samePiece(t.kinds[q], pc) {
				pc.kind = q
			}
		}
		if pc.kind >= 0 {
			continue
		}
		pc.kind = len(t.kinds)
		seen[k] = append(seen[k], pc.kind)
		t.kinds = append(t.kinds, pc)
		if pc.pattern == nil {
			pc.flows = t.m.flowsOf(&pc.step)
		}
	}
}

// flowsOf returns the flows of a piece if the fabric forwards or the piece has no pattern. The slice is valid until the
// next call: the flows of all pieces might not fit in memory.
func (t *table) flowsOf(pc *piece) [][2]int {
	if pc.flows != nil || !t.m.p.Forwarding {
		return pc.flows
	}
	if pc.class == nil && pc.step.flows != nil {
		return pc.step.flows
	}
	t.listed = t.listed[:0]
	for r, d := range pc.pattern {
		if d != circuit.Dark {
			t.listed = append(t.listed, [2]int{r, d})
		}
	}
	return t.listed
}

// digest returns a hash of the piece's flows.
func (pc *piece) digest() uint64 {
	if pc.pattern != nil {
		return pc.pattern.Digest()
	}
	list := make(circuit.Permutation, 0, 2*len(pc.step.flows))
	for _, f := range pc.step.flows {
		list = append(list, f[0], f[1])
	}
	return list.Digest()
}

// samePiece reports whether two pieces of equal digest have the same flows.
func samePiece(a, b *piece) bool {
	if a.pattern != nil || b.pattern != nil {
		return a.pattern != nil && b.pattern != nil && a.pattern.Equal(b.pattern)
	}
	return slices.Equal(a.step.flows, b.step.flows)
}

// measure fills the times of one state and returns the work.
func (t *table) measure(c int) int {
	t.server.bind(t.states[c])
	simple := t.server.uniform() || !t.m.p.Forwarding
	work := t.flows
	if !simple {
		work = t.flows*(len(t.states[c])+1) + t.m.p.Ranks*t.m.p.Ranks*t.m.p.Planes
	}
	for k, pc := range t.kinds {
		t.set(k, c, t.server.simpleUS(&pc.step, t.flowsOf(pc)))
		if simple {
			continue
		}
		if least := t.server.floorUS(&pc.step, pc.flows, t.us[k][c]); least < t.us[k][c]-tolerance(least) {
			t.open(k, c, least)
		}
	}
	return work
}

// open records that the time of a kind in a state may go down to least.
func (t *table) open(k, c int, least float64) {
	if t.tier[k] == nil {
		t.floor[k] = slices.Clone(t.us[k])
		t.tier[k] = slices.Repeat([]uint8{closed}, len(t.states))
	}
	t.floor[k][c], t.tier[k][c] = least, 0
}

// measureDirect fills the times of one state for pieces that it serves without forwarding. Out of time,
// it serves none.
func (t *table) measureDirect(c int) {
	late := t.stop()
	if !late {
		t.server.bind(t.states[c])
	}
	for k, pc := range t.kinds {
		us := math.Inf(1)
		if !late {
			us = t.server.directUS(&pc.step, t.flowsOf(pc))
		}
		t.set(k, c, us)
	}
}

// set records a time that is not open.
func (t *table) set(k, c int, us float64) { t.us[k][c], t.floor[k][c] = us, us }

// isOpen reports whether more search may lower a time.
func (t *table) isOpen(kind, state int) bool {
	return t.tier[kind] != nil && t.tier[kind][state] != closed
}

// spent reports whether there is no work or time left.
func (t *table) spent() bool { return t.limit <= 0 || t.stop() }

// refine makes the next search for an open time. If the work is spent, it makes the first search, unless it has been
// made, and closes the time.
func (t *table) refine(kind, state int) {
	if !t.isOpen(kind, state) {
		return
	}
	pc, at := t.kinds[kind], &t.tier[kind][state]
	us, least := &t.us[kind][state], &t.floor[kind][state]
	t.server.bind(t.states[state])
	if !t.server.joint {
		*us = math.Min(*us, t.server.spread(&pc.step, t.flowsOf(pc)).us)
		*least, *at = *us, closed
		return
	}
	last := t.spent()
	if !last {
		*at = max(*at, 1) // a first look proves nothing beyond the floor
	}
	if !last || *at == 0 {
		o, bound, work := t.server.jointly(&pc.step, t.flowsOf(pc), int(*at))
		t.limit -= work
		if o.us < *us {
			if math.IsInf(*us, 1) {
				t.keep = max(t.keep, o.joint.size()) // there is nothing else
			}
			if t.remember(kind, state, o.joint) {
				*us = o.us
			}
		}
		*least = math.Max(*least, bound)
		*at++
	}
	if last || *least >= *us*(1-flowTiers[closed-1].Epsilon) {
		*at = closed
	}
	if *at == closed {
		*least = *us
	}
}

// write appends a piece, served as its time in the table says, to a plan whose planes are
// set to state.
func (t *table) write(line *timeline, pc *piece, state int) {
	flows := t.m.flowsOf(&pc.step)
	t.server.bind(t.states[state])
	o := t.server.simple(&pc.step, flows)
	if us := t.us[pc.kind][state]; o.us > us+tolerance(us) {
		if j := t.found[[2]int{pc.kind, state}]; j != nil {
			o = offer{joint: j}
		} else {
			o = t.server.spread(&pc.step, flows)
		}
	}
	line.send(pc, o)
	if pc.last {
		line.closeStep()
	}
}

// remember replaces the routes of a longer time by those of j, and reports whether there is room for them.
func (t *table) remember(kind, state int, j *joint) bool {
	key, room := [2]int{kind, state}, t.keep
	if old := t.found[key]; old != nil {
		room += old.size()
	}
	size := j.size()
	if size > room {
		return false
	}
	t.keep, t.found[key] = room-size, j
	return true
}
