package recording

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lightpath/collectives/schedule"
	"lightpath/plans/iteration/learn"
	"lightpath/plans/iteration/trace"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
)

// event is a call of all ranks of a communicator, or sends and receives that belong together.
type event struct {
	call       trace.Call
	number     int64 // of a collective; -1: messages
	start, end int64 // ns of Unix time: the latest over the ranks
	stream     bool
	parts      []part
}

// part is what one rank has done of an event.
type part struct {
	rank int // of the job
	span
	receives bool
}

// add adds the part of a rank.
func (e *event) add(p part) {
	e.start, e.end = max(e.start, p.begin), max(e.end, p.end)
	e.parts = append(e.parts, p)
}

// join adds the same call of other ranks.
func (e *event) join(o *event) {
	e.start, e.end, e.stream = max(e.start, o.start), max(e.end, o.end), e.stream || o.stream
	e.parts = slices.Concat(e.parts, o.parts)
}

// on returns the parts in the order of ranks, each rank's as one. base is time 0.
func (e *event) on(base int64) []learn.Part {
	slices.SortStableFunc(e.parts, func(a, b part) int { return a.rank - b.rank })
	var list []learn.Part
	for _, p := range e.parts {
		q := learn.Part{Rank: p.rank, StartUS: micros(p.begin - base), EndUS: micros(p.end - base), Receives: p.receives}
		if n := len(list) - 1; n >= 0 && list[n].Rank == q.Rank {
			q.StartUS, q.EndUS = max(q.StartUS, list[n].StartUS), max(q.EndUS, list[n].EndUS)
			q.Receives = q.Receives || list[n].Receives
			list[n] = q
			continue
		}
		list = append(list, q)
	}
	return list
}

func micros(ns int64) float64 { return float64(ns) / 1e3 }

// clocks returns the offset of each host's clock to Unix time: one for all its processes, so that their times compare.
func clocks(files []*File) map[string]int64 {
	at := map[string]int64{}
	for _, f := range files {
		if o, ok := at[f.Host]; !ok || f.Offset < o {
			at[f.Host] = f.Offset
		}
	}
	return at
}

// span is the time of a call that is alone, or of a group.
type span struct{ begin, end int64 }

// spans returns the times of the groups that have been run.
func (f *File) spans() map[uint64]span {
	groups := map[uint64]span{}
	for i := range f.Calls {
		if c := &f.Calls[i]; c.GroupEnd && c.End > 0 {
			groups[c.Group] = span{c.Begin, c.End}
		}
	}
	return groups
}

// together is a collective, as far as its ranks have been read.
type together struct {
	event
	ranks int
	first *Call
	rank  int // of first
}

// gathering collects the calls of the communicators of a job.
type gathering struct {
	*job
	collectives map[*communicator]map[int64]*together
	messages    *messages
	left        int // groups that have not been run, and calls that not all ranks have
}

// events fills in the events of all communicators. left counts calls that have no event.
func (j *job) events() (left int, err error) {
	g := gathering{j, map[*communicator]map[int64]*together{}, newMessages(), 0}
	offsets := clocks(j.files)
	for _, f := range j.files {
		if err := g.read(f, offsets[f.Host]); err != nil {
			return 0, err
		}
	}
	for _, c := range j.comms {
		for _, t := range g.collectives[c] {
			if t.ranks == len(c.members) {
				c.events = append(c.events, t.event)
			} else {
				g.left++
			}
		}
	}
	g.left += g.messages.join()
	for _, c := range j.comms {
		slices.SortFunc(c.events, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.number, b.number), slices.Compare(flat(&a), flat(&b)))
		})
		c.events = sideBySide(c.events)
	}
	return g.left, nil
}

func flat(e *event) []int {
	var list []int
	for _, f := range e.call.Flows {
		list = append(list, f[:]...)
	}
	return list
}

// read reads the calls of a file.
func (g *gathering) read(f *File, offset int64) error {
	groups := f.spans()
	units := map[[2]uint64]int{} // communicator and group -> unit of messages
	for i := range f.Calls {
		c := &f.Calls[i]
		comm := (*communicator)(nil)
		if !c.GroupEnd {
			comm = g.of[member{f, c.Comm}]
		}
		if comm == nil || len(comm.members) < 2 {
			continue
		}
		at := span{c.Begin, c.End}
		if c.Group > 0 {
			s, ok := groups[c.Group]
			if !ok {
				g.left++
				continue
			}
			at = s
		}
		at = span{at.begin + offset, at.end + offset}
		rank := f.Comms[c.Comm].Rank
		p := part{rank: comm.job[rank], span: at}
		if !c.Kind.P2P() {
			if err := g.collective(comm, rank, c, p); err != nil {
				return err
			}
			continue
		}
		key := [2]uint64{uint64(c.Comm), c.Group}
		unit, ok := units[key]
		if !ok || c.Group == 0 {
			unit = g.messages.unit(comm, p)
			units[key] = unit
		}
		g.messages.add(comm, rank, c, unit)
	}
	return nil
}

// collective adds the call of one rank.
func (g *gathering) collective(comm *communicator, rank int, c *Call, p part) error {
	if g.collectives[comm] == nil {
		g.collectives[comm] = map[int64]*together{}
	}
	number := int64(c.Number)
	t := g.collectives[comm][number]
	if t == nil {
		call, err := collectiveOf(c, len(comm.members))
		if err != nil {
			return err
		}
		t = &together{event: event{call: call, number: number}, first: c, rank: rank}
		g.collectives[comm][number] = t
	}
	if o := t.first; o.Kind != c.Kind || o.Bytes() != c.Bytes() || o.Peer != c.Peer {
		return fmt.Errorf("%w: communicator %s, collective %d: rank %d called %s of %g bytes, root %d, and rank %d %s of %g "+
			"bytes, root %d", ErrJob, comm.name(), number, t.rank, o.Kind, o.Bytes(), o.Peer, rank, c.Kind, c.Bytes(), c.Peer)
	}
	t.ranks++
	t.stream = t.stream || c.Stream
	p.receives = true
	t.add(p)
	return nil
}

// collectiveOf returns the call of a trace. Its algorithm is the one that Lightpath takes on circuits.
func collectiveOf(c *Call, ranks int) (trace.Call, error) {
	collective, err := schedule.ParseCollective(words[c.Kind])
	if err != nil {
		return trace.Call{}, fmt.Errorf("%w: %w", ErrJob, err)
	}
	call := trace.Call{Collective: collective.String(), Bytes: c.Bytes(),
		Algorithm: dispatch.Choose(collective, int64(c.Bytes()), ranks, dispatch.Circuits, nil)}
	if per := collective.BlockBytes(1, ranks); per > 0 {
		call.Bytes = math.Round(call.Bytes / per)
	}
	if collective.Rooted() {
		call.Root = c.Peer
	}
	return call, nil
}

// words are the names of collectives in a trace.
var words = map[calls.Kind]string{
	calls.AllReduce: "allreduce", calls.Broadcast: "broadcast", calls.Reduce: "reduce", calls.AllGather: "allgather",
	calls.ReduceScatter: "reducescatter", calls.AllToAll: "alltoall", calls.Gather: "gather", calls.Scatter: "scatter",
}
