package offer

import (
	"context"
	"math"
	"slices"

	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
)

// Table holds the times of a model's pieces in states: settings of all planes. If an exact time needs a search for
// routes, there are two times, an attained one and a floor. When a path needs the piece, searches bring them together,
// tier by tier.
type Table struct {
	Pieces []Piece
	States [][]circuit.Permutation
	US     [][]float64 // [kind][state]: attained; +Inf where nothing is known
	Floor  [][]float64 // [kind][state]: no offer takes less

	m      *model.Model
	server *server
	kinds  []*Piece
	tier   [][]uint8 // [kind][state]: searches made, or closed; nil row: all are closed
	known  int       // states that are measured; of the others it is known what they serve direct
	flows  int       // of all kinds
	limit  int64     // work left, as flow counts it
	ctx    context.Context
	found  map[[2]int]*joint // by kind and state: the joint transmission that takes us, if one does
	keep   int               // hops of routes that may still be kept
	listed [][2]int          // buffer of flowsOf
}

// keptHops bounds the hops of the routes that a table stores. A time whose routes do not fit is dropped: a plan with so
// many routes is of little use.
const keptHops = 2 << 20

// FinalLooks is the number of promising choices whose times get a first search when the work is spent.
const FinalLooks = 2

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

// NewTable measures pieces of m on states, in order. Beyond measureWork it measures only the pieces that states serve
// direct. If partial is false, a plane serves a pattern only if it has all of its circuits.
func NewTable(ctx context.Context, m *model.Model, o effort.Search, partial bool, pieces []Piece,
	states [][]circuit.Permutation) *Table {
	t := &Table{m: m, server: newServer(m, o, partial), Pieces: pieces, States: states, limit: int64(o.Effort) / workShare,
		found: map[[2]int]*joint{}, keep: keptHops, ctx: ctx}
	t.findKinds()
	t.US, t.Floor, t.tier = make([][]float64, len(t.kinds)), make([][]float64, len(t.kinds)), make([][]uint8, len(t.kinds))
	for k := range t.US {
		t.US[k] = make([]float64, len(states))
		t.Floor[k] = t.US[k] // until they differ somewhere
	}
	for _, pc := range t.kinds {
		t.flows += t.m.FlowCount(&pc.Step)
	}
	t.measureUpTo(min(measureWork, int(o.Effort)/measureShare))
	for c := t.known; c < len(states); c++ {
		t.measureDirect(c)
	}
	return t
}

// measureUpTo measures states, at least one, until the given work is spent or the time is over.
func (t *Table) measureUpTo(work int) {
	for ; t.known < len(t.States) && work >= 0 && (t.known == 0 || !t.Late()); t.known++ {
		work -= t.measure(t.known)
	}
}

// MeasureRest measures the states that NewTable left out, as far as time allows. It returns false if there are none, or
// no time.
func (t *Table) MeasureRest() bool {
	if t.Complete() || t.Late() {
		return false
	}
	t.measureUpTo(math.MaxInt)
	return true
}

// Complete reports whether all states are measured.
func (t *Table) Complete() bool { return t.known == len(t.States) }

// Late reports whether the time is over.
func (t *Table) Late() bool { return t.ctx.Err() != nil }

// Spend takes work from what is left.
func (t *Table) Spend(work int) { t.limit -= int64(work) }

// findKinds numbers the pieces by kind: equal flows and bytes have equal numbers.
func (t *Table) findKinds() {
	type key struct {
		digest uint64
		bytes  float64
	}
	seen := map[key][]int{}
	for i := range t.Pieces {
		pc := &t.Pieces[i]
		k := key{pc.digest(), pc.Bytes}
		pc.Kind = -1
		for _, q := range seen[k] {
			if samePiece(t.kinds[q], pc) {
				pc.Kind = q
			}
		}
		if pc.Kind >= 0 {
			continue
		}
		pc.Kind = len(t.kinds)
		seen[k] = append(seen[k], pc.Kind)
		t.kinds = append(t.kinds, pc)
		if pc.Pattern == nil {
			pc.cached = t.m.FlowsOf(&pc.Step)
		}
	}
}

// flowsOf returns the flows of a piece if the fabric forwards or the piece has no pattern. The slice is valid until the
// next call: the flows of all pieces might not fit in memory.
func (t *Table) flowsOf(pc *Piece) [][2]int {
	if pc.cached != nil || !t.m.P.Forwarding {
		return pc.cached
	}
	if pc.Class == nil && pc.Flows != nil {
		return pc.Flows
	}
	t.listed = t.listed[:0]
	for r, d := range pc.Pattern {
		if d != circuit.Dark {
			t.listed = append(t.listed, [2]int{r, d})
		}
	}
	return t.listed
}

// digest returns a hash of the piece's flows.
func (pc *Piece) digest() uint64 {
	if pc.Pattern != nil {
		return pc.Pattern.Digest()
	}
	list := make(circuit.Permutation, 0, 2*len(pc.Flows))
	for _, f := range pc.Flows {
		list = append(list, f[0], f[1])
	}
	return list.Digest()
}

// samePiece reports whether two pieces of equal digest have the same flows.
func samePiece(a, b *Piece) bool {
	if a.Pattern != nil || b.Pattern != nil {
		return a.Pattern != nil && b.Pattern != nil && a.Pattern.Equal(b.Pattern)
	}
	return slices.Equal(a.Flows, b.Flows)
}

// measure fills the times of one state and returns the work.
func (t *Table) measure(c int) int {
	t.server.setMaps(t.States[c])
	simple := t.server.uniform() || !t.m.P.Forwarding
	work := t.flows
	if !simple {
		work = t.flows*(len(t.States[c])+1) + t.m.P.Ranks*t.m.P.Ranks*t.m.P.Planes
	}
	for k, pc := range t.kinds {
		t.set(k, c, t.server.simpleUS(&pc.Step, t.flowsOf(pc)))
		if simple {
			continue
		}
		if least := t.server.floorUS(&pc.Step, pc.cached, t.US[k][c]); least < t.US[k][c]-model.Tolerance(least) {
			t.open(k, c, least)
		}
	}
	return work
}

// open records that the time of a kind in a state may go down to least.
func (t *Table) open(k, c int, least float64) {
	if t.tier[k] == nil {
		t.Floor[k] = slices.Clone(t.US[k])
		t.tier[k] = slices.Repeat([]uint8{closed}, len(t.States))
	}
	t.Floor[k][c], t.tier[k][c] = least, 0
}

// measureDirect fills the times of one state for pieces that it serves without forwarding. Out of time,
// it serves none.
func (t *Table) measureDirect(c int) {
	late := t.Late()
	if !late {
		t.server.setMaps(t.States[c])
	}
	for k, pc := range t.kinds {
		us := math.Inf(1)
		if !late {
			us = t.server.directUS(&pc.Step, t.flowsOf(pc))
		}
		t.set(k, c, us)
	}
}

// set records a time that is not open.
func (t *Table) set(k, c int, us float64) { t.US[k][c], t.Floor[k][c] = us, us }

// IsOpen reports whether more search may lower a time.
func (t *Table) IsOpen(kind, state int) bool {
	return t.tier[kind] != nil && t.tier[kind][state] != closed
}

// Spent reports whether there is no work or time left.
func (t *Table) Spent() bool { return t.limit <= 0 || t.Late() }

// Refine makes the next search for an open time. If the work is spent, it makes the first search, unless it has been
// made, and closes the time.
func (t *Table) Refine(kind, state int) {
	if !t.IsOpen(kind, state) {
		return
	}
	pc, at := t.kinds[kind], &t.tier[kind][state]
	us, least := &t.US[kind][state], &t.Floor[kind][state]
	t.server.setMaps(t.States[state])
	if !t.server.joint {
		*us = math.Min(*us, t.server.spread(&pc.Step, t.flowsOf(pc)).us)
		*least, *at = *us, closed
		return
	}
	last := t.Spent()
	if !last {
		*at = max(*at, 1) // a first look proves nothing beyond the floor
	}
	if !last || *at == 0 {
		o, bound, work := t.server.jointly(&pc.Step, t.flowsOf(pc), int(*at))
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

// Write appends a piece, served as its time in the table says, to a plan whose planes are
// set to state.
func (t *Table) Write(line *timeline.Timeline, pc *Piece, state int) {
	flows := t.m.FlowsOf(&pc.Step)
	t.server.setMaps(t.States[state])
	o := t.server.simple(&pc.Step, flows)
	if us := t.US[pc.Kind][state]; o.us > us+model.Tolerance(us) {
		if j := t.found[[2]int{pc.Kind, state}]; j != nil {
			o = offer{joint: j}
		} else {
			o = t.server.spread(&pc.Step, flows)
		}
	}
	send(t.m, line, pc, o)
	if pc.Last {
		line.CloseStep()
	}
}

// remember replaces the routes of a longer time by those of j, and reports whether there is room for them.
func (t *Table) remember(kind, state int, j *joint) bool {
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
