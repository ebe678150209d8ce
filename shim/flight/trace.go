package flight

import (
	"fmt"

	"lightpath/internal/chrometrace"
)

// The tracks of a rank: its calls, then a plane each.
const (
	trackCalls = 0
	trackPlane = 1
)

// Trace makes one trace of dumps: a group of tracks per rank and communicator, with one track for
// calls and one for each plane, on which reconfigurations are slices. It aligns the clocks of several hosts by their
// time of day.
func Trace(dumps []*Dump) *chrometrace.File {
	t := chrometrace.New()
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
		t.NameProcess(i, fmt.Sprintf("rank %d (%s, process %d) comm %s", d.Rank, d.Host, d.PID, d.Comm))
		t.NameLane(i, trackCalls, "calls")
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
	file   *chrometrace.File
	d      *Dump
	pid    int
	base   int64
	tracks map[int]bool // that have a name
}

// slice adds a slice. Without a start it adds none; without an end the slice lasts until the dump.
func (r *tracer) slice(name, cat string, track int, start, end int64, args map[string]any) {
	if start <= 0 {
		return
	}
	if end < start {
		end = max(r.d.Time, start)
	}
	r.file.Slice(r.pid, track, name, cat, float64(r.d.unix(start)-r.base)/1e3, float64(end-start)/1e3, args)
}

func (r *tracer) plane(plane int) int {
	track := trackPlane + plane
	if !r.tracks[track] {
		r.tracks[track] = true
		r.file.NameLane(r.pid, track, fmt.Sprintf("plane %d", plane))
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
		r.slice(o.label(), "plane", r.plane(l.Plane), l.Start, l.End, map[string]any{"epoch": l.Epoch, "sent": l.Sent,
			"received": l.Received})
	}
	for _, m := range o.Moves {
		end := m.End
		if end == 0 {
			end = m.Start // no event followed, so its end is not known
		}
		r.slice(fmt.Sprintf("reconfigure %d -> %d", m.Epoch, m.Epoch+1), "reconfiguration",
			r.plane(m.Plane), m.Start, end, nil)
	}
}
