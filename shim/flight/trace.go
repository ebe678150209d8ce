package flight

import "fmt"

// TraceFile is the JSON object format of Chrome's trace events, which Perfetto reads.
type TraceFile struct {
	Unit   string  `json:"displayTimeUnit"`
	Events []Event `json:"traceEvents"`
}

// Event is one trace event. Phase X is a slice, M names a track. Times are microseconds.
type Event struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	TS    float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"` // of slices
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// The tracks of a rank: its calls, then a plane each.
const (
	trackCalls = 0
	trackPlane = 1
)

// Trace makes one trace of dumps: a group of tracks per rank and communicator, with one track for
// calls and one for each plane, on which reconfigurations are slices. Clocks of several hosts are
// put together by their time of day.
func Trace(dumps []*Dump) *TraceFile {
	t := &TraceFile{Unit: "ns", Events: []Event{}}
	var base int64
	for _, d := range dumps {
		for i := range d.Operations {
			if at := d.unix(d.Operations[i].Arrived); d.Operations[i].Arrived > 0 && (base == 0 || at < base) {
				base = at
			}
		}
	}
	for i, d := range dumps {
		r := tracer{file: t, d: d, pid: i, base: base, tracks: map[int]bool{}}
		r.name("process_name", trackCalls, fmt.Sprintf("rank %d (%s, process %d) comm %s", d.Rank, d.Host, d.PID, d.Comm))
		r.name("thread_name", trackCalls, "calls")
		for k := range d.Operations {
			r.operation(&d.Operations[k])
		}
	}
	return t
}

// unix is a time of the dump in nanoseconds of Unix time.
func (d *Dump) unix(ns int64) int64 { return ns - d.Time + d.UnixTime }

// tracer writes the tracks of one dump.
type tracer struct {
	file   *TraceFile
	d      *Dump
	pid    int
	base   int64
	tracks map[int]bool // that have a name
}

func (r *tracer) name(what string, track int, name string) {
	r.file.Events = append(r.file.Events, Event{Name: what, Phase: "M", PID: r.pid, TID: track, Args: map[string]any{"name": name}})
}

// slice adds a slice; one without a beginning is none, one without an end lasts until the dump.
func (r *tracer) slice(name, cat string, track int, start, end int64, args map[string]any) {
	if start <= 0 {
		return
	}
	if end < start {
		end = max(r.d.Time, start)
	}
	dur := float64(end-start) / 1e3
	r.file.Events = append(r.file.Events, Event{
		Name: name, Cat: cat, Phase: "X", TS: float64(r.d.unix(start)-r.base) / 1e3, Dur: &dur, PID: r.pid, TID: track, Args: args,
	})
}

func (r *tracer) plane(plane int) int {
	track := trackPlane + plane
	if !r.tracks[track] {
		r.tracks[track] = true
		r.name("thread_name", track, fmt.Sprintf("plane %d", plane))
	}
	return track
}

func (r *tracer) operation(o *Operation) {
	args := map[string]any{"call": o.Detail, "bytes": o.Bytes, "algorithm": o.Algorithm, "outcome": o.Outcome}
	for name, text := range map[string]string{"plan": o.Plan, "planner": o.Planner, "waits for": o.Wait} {
		if text != "" {
			args[name] = text
		}
	}
	r.slice(o.label(), "call", trackCalls, o.Arrived, r.d.end(o), args)
	if o.Asked > 0 {
		end := o.Ticketed
		if end == 0 {
			end = r.d.end(o)
		}
		r.slice("ticket", "ticket", trackCalls, o.Asked, end, nil)
	}
	for _, l := range o.Planes {
		r.slice(o.label(), "plane", r.plane(l.Plane), l.Start, l.End, map[string]any{"epoch": l.Epoch, "sent": l.Sent, "received": l.Received})
	}
	for _, m := range o.Moves {
		end := m.End
		if end == 0 {
			end = m.Start // nothing followed: when it ended is not known here
		}
		r.slice(fmt.Sprintf("reconfigure %d -> %d", m.Epoch, m.Epoch+1), "reconfiguration", r.plane(m.Plane), m.Start, end, nil)
	}
}
