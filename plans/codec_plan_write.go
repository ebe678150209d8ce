package plans

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"lightpath/internal/encode"
	"lightpath/plans/circuit"
)

// writable returns why p cannot be written so that DecodePlan reads it back.
func (p *Plan) writable() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", ErrPlan, fmt.Errorf(format, args...))
	}
	switch {
	case p.Version != Version:
		return fail("version: %d is not %d", p.Version, Version)
	case len(p.Planes) > MaxPlanes || len(p.Initial) > MaxPlanes:
		return fail("planes: more than %d", MaxPlanes)
	case !finite(p.CCTUS, p.LowerBoundUS):
		return fail("cct_us, lower_bound_us: %v, %v: must be finite", p.CCTUS, p.LowerBoundUS)
	case !utf8.ValidString(p.Planner + p.BoundProof + p.Digest):
		return fail("planner, bound, digest: malformed text")
	}
	for j, entries := range p.Planes {
		for i := range entries {
			if err := entries[i].writable(); err != nil {
				return fail("planes[%d][%d]: %w", j, i, err)
			}
		}
	}
	seen := map[mapKey]bool{}
	var wrong error
	p.maps(func(c circuit.Permutation) {
		if wrong != nil || seen[keyOf(c)] {
			return
		}
		seen[keyOf(c)] = true
		if len(c) > MaxRanks || slices.ContainsFunc(c, func(s int) bool { return s < circuit.Dark || s >= MaxRanks }) {
			wrong = fail("a map has a port outside -1..%d", MaxRanks-1)
		}
	})
	return wrong
}

func (e *Entry) writable() error {
	switch {
	case e.Kind != Transmit && e.Kind != Reconfigure && e.Kind != Hold:
		return fmt.Errorf("kind: %q is not transmit, reconfigure or hold", e.Kind)
	case !finite(e.StartUS, e.EndUS, e.Bytes):
		return errors.New("times and bytes must be finite")
	case e.Kind == Transmit && (e.Step < 0 || e.Step > math.MaxInt32):
		return fmt.Errorf("step: %d is outside 0..%d", e.Step, math.MaxInt32)
	case !utf8.ValidString(e.Joint) || e.Joint == "" && e.Routes != nil || e.Joint != "" && e.Flows != nil:
		return errors.New("flows are for entries that are not joint, routes for those that are")
	}
	for _, route := range e.Routes {
		if !finite(route.Bytes) {
			return errors.New("routes: bytes must be finite")
		}
	}
	return nil
}

func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// EncodePlan writes p as a plan file, one entry a line. It fails if [DecodePlan] would refuse p: a number that is not
// finite, an unknown kind of entry.
func EncodePlan(p *Plan) ([]byte, error) {
	if err := p.writable(); err != nil {
		return nil, err
	}
	return encodePlan(p, &writer{}), nil
}

// EncodeCompactPlan is EncodePlan in the compact form, with the repetitions that p.Repeats names.
func EncodeCompactPlan(p *Plan) ([]byte, error) {
	if err := p.writable(); err != nil {
		return nil, err
	}
	return encodePlan(p, &writer{names: namesOf(p)}), nil
}

func encodePlan(p *Plan, w *writer) []byte {
	b := encode.Text(fmt.Appendf(nil, `{"version":%d, "planner":`, p.Version), p.Planner)
	b = encode.Number(append(b, `, "cct_us":`...), p.CCTUS)
	b = encode.Number(append(b, `, "lower_bound_us":`...), p.LowerBoundUS)
	if p.BoundProof != "" {
		b = encode.Text(append(b, `, "bound":`...), p.BoundProof)
	}
	if p.Digest != "" {
		b = encode.Text(append(b, ",\n \"digest\":"...), p.Digest)
	}
	if w.names != nil {
		b = fmt.Appendf(b, ",\n \"ranks\":%d", max(1, w.names.ranks))
		if len(w.names.list) > 0 {
			b = encode.List(append(b, ",\n \"maps\":"...), "\n  ", len(w.names.list), func(b []byte, i int) []byte {
				return encode.Ints(b, w.names.list[i])
			})
		}
	}
	b = w.appendMaps(append(b, ",\n \"initial\":"...), p.Initial)
	b = encode.List(append(b, ",\n \"planes\":"...), "\n  ", len(p.Planes), func(b []byte, j int) []byte {
		return w.appendPlane(b, p, j)
	})
	return append(b, "}\n"...)
}

// appendPlane writes the entries of a plane; in the compact form, repeating entries once.
func (w *writer) appendPlane(b []byte, p *Plan, j int) []byte {
	entries := p.Planes[j]
	var repeats []Repeat
	if w.names != nil && j < len(p.Repeats) {
		repeats = p.Repeats[j]
	}
	b = append(b, '[')
	for i := 0; i < len(entries); {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n   "...)
		for len(repeats) > 0 && repeats[0].From < i {
			repeats = repeats[1:]
		}
		if len(repeats) > 0 && repeats[0].From == i {
			if w.names.repeat(entries, &repeats[0]) {
				b = w.appendRepeat(b, entries, &repeats[0])
				i += repeats[0].Period * repeats[0].Count
				continue
			}
		}
		b = w.appendEntry(b, &entries[i])
		i++
	}
	return append(b, ']')
}

// repeat reports whether entries repeat exactly as rep says.
func (n *names) repeat(entries []Entry, rep *Repeat) bool {
	if rep.Period < 1 || rep.Period > maxPeriod || rep.Count < 2 || rep.From+rep.Period*rep.Count > len(entries) {
		return false
	}
	for i := 1; i < rep.Count; i++ {
		for k := range rep.Period {
			e, f := &entries[rep.From+k], &entries[rep.From+i*rep.Period+k]
			if want := rep.shifted(e, i); !want.sameBut(f) || !n.sameMap(rep, e, f, i) {
				return false
			}
		}
	}
	return true
}

// sameMap reports whether f has the map of e in repetition i.
func (n *names) sameMap(rep *Repeat, e, f *Entry, i int) bool {
	if e.Kind == Transmit {
		return true
	}
	name := n.of(e.To)
	if name.form == listForm {
		return rep.ToBy == 0 && e.To.Equal(f.To)
	}
	return n.of(f.To) == name.moved(i, rep.ToBy, n.ranks)
}

// sameBut reports whether two entries that are not joint are equal but for their maps.
func (e *Entry) sameBut(f *Entry) bool {
	return e.Kind == f.Kind && e.Step == f.Step && e.Bytes == f.Bytes && e.Joint == "" && f.Joint == "" &&
		(e.Flows == nil) == (f.Flows == nil) && slices.Equal(e.Flows, f.Flows) && e.StartUS == f.StartUS && e.EndUS == f.EndUS
}

func (w *writer) appendRepeat(b []byte, entries []Entry, rep *Repeat) []byte {
	b = fmt.Appendf(b, `{"repeat":%d, "step_by":%d, "to_by":%d, "us_by":`, rep.Count, rep.StepBy, rep.ToBy)
	b = append(encode.Number(b, rep.ByUS), `, "entries":`...)
	b = encode.List(b, "\n    ", rep.Period, func(b []byte, k int) []byte {
		return w.appendEntry(b, &entries[rep.From+k])
	})
	return append(b, '}')
}

func (w *writer) appendEntry(b []byte, e *Entry) []byte {
	b = encode.Text(append(b, `{"kind":`...), string(e.Kind))
	if e.Kind != Transmit {
		b = w.appendMap(append(b, `, "to":`...), e.To)
	} else {
		b = fmt.Appendf(b, `, "step":%d`, e.Step)
		if e.Joint == "" {
			b = encode.Number(append(b, `, "bytes":`...), e.Bytes)
		} else {
			b = encode.Text(append(b, `, "joint":`...), e.Joint)
		}
		if e.Flows != nil {
			b = encode.Ints(append(b, `, "flows":`...), e.Flows)
		}
		if e.Routes != nil {
			b = encode.List(append(b, `, "routes":`...), "\n    ", len(e.Routes), func(b []byte, i int) []byte {
				return appendRoute(b, &e.Routes[i])
			})
		}
	}
	b = encode.Number(append(b, `, "start_us":`...), e.StartUS)
	b = encode.Number(append(b, `, "end_us":`...), e.EndUS)
	return append(b, '}')
}

func appendRoute(b []byte, r *Route) []byte {
	b = encode.Ints(append(b, `{"flow":`...), r.Flow[:])
	b = encode.Number(append(b, `, "bytes":`...), r.Bytes)
	b = encode.List(append(b, `, "path":`...), "", len(r.Path), func(b []byte, i int) []byte {
		return encode.Ints(b, r.Path[i][:])
	})
	return append(b, '}')
}
