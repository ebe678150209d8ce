package plans

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"lightpath/plans/circuit"
	"lightpath/plans/internal/jsonread"
)

// ErrPlan is wrapped by every error about text that is not a plan file. Whether a plan is
// feasible is another question, which plans/check answers.
var ErrPlan = errors.New("plans: bad plan file")

// DecodePlan reads a plan file. Fields that it does not know are skipped, since files may
// gain some; those it knows must have the right type and belong to the kind of their
// entry, and version, cct_us and planes must be there. Ranks, steps and times are not
// judged here: that takes the problem (plans/check). Errors wrap [ErrPlan].
func DecodePlan(data []byte) (*Plan, error) {
	r := &reader{Reader: jsonread.New(data)}
	p := &Plan{}
	err := decodePlan(r, p)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	return p, nil
}

func decodePlan(r *reader, p *Plan) error {
	var version, cct, planes bool
	err := r.Object(func(key string) (err error) {
		switch key {
		case "version":
			version = true
			p.Version, err = r.Integer(Version, Version)
		case "planner":
			p.Planner, err = r.Text()
		case "cct_us":
			cct = true
			p.CCTUS, err = r.Number()
		case "lower_bound_us":
			p.LowerBoundUS, err = r.Number()
		case "bound":
			p.BoundProof, err = r.Text()
		case "initial":
			if !r.Literal("null") {
				p.Initial, err = r.permutations()
			}
		case "ranks":
			r.ranks, err = r.Integer(1, MaxRanks)
		case "maps":
			err = r.places()
		case "planes":
			planes = true
			p.Planes = [][]Entry{}
			expanded := 0
			err = r.List(MaxPlanes, func(j int) error {
				p.Planes = append(p.Planes, []Entry{})
				return r.List(math.MaxInt, func(int) error { return decodeEntries(r, p, j, &expanded) })
			})
		case "digest":
			p.Digest, err = r.Text()
		default:
			err = r.Skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !version:
		return jsonread.At("version", "missing")
	case !cct:
		return jsonread.At("cct_us", "missing")
	case !planes:
		return jsonread.At("planes", "missing")
	}
	return nil
}

// entryField is a set of the known fields of an entry.
type entryField uint16

const (
	fieldKind entryField = 1 << iota
	fieldStep
	fieldBytes
	fieldFlows
	fieldJoint
	fieldRoutes
	fieldTo
	fieldStart
	fieldEnd
)

// entryFields names the fields, by bit.
var entryFields = []string{"kind", "step", "bytes", "flows", "joint", "routes", "to", "start_us", "end_us"}

// repetition is what an element of a plane's list says beside being an entry.
type repetition struct {
	Repeat
	entries []named
}

// named is an entry and the name of its map, where it has one.
type named struct {
	Entry
	to mapName
}

// decodeEntries reads an element of a plane's list: an entry, or entries that repeat.
func decodeEntries(r *reader, p *Plan, j int, expanded *int) error {
	e, rep, err := decodeEntry(r, true)
	if err != nil {
		return err
	}
	if rep == nil {
		p.Planes[j] = append(p.Planes[j], e.Entry)
		return nil
	}
	rep.From, rep.Period = len(p.Planes[j]), len(rep.entries)
	if *expanded += rep.Period * rep.Count; *expanded > maxExpanded {
		return r.Errorf("repeat: more than %d entries", maxExpanded)
	}
	for i := range rep.Count {
		for k := range rep.entries {
			e := rep.shifted(&rep.entries[k].Entry, i)
			switch {
			case e.Step < 0 || e.Step > math.MaxInt32:
				return r.Errorf("step_by: repetition %d is of step %d", i, e.Step)
			case math.IsInf(e.StartUS+e.EndUS, 0):
				return r.Errorf("us_by: repetition %d has times that are not finite", i)
			}
			if i > 0 && e.Kind != Transmit && rep.ToBy != 0 {
				if e.To, err = r.named(rep.entries[k].to.moved(i, rep.ToBy, r.ranks)); err != nil {
					return err
				}
			}
			p.Planes[j] = append(p.Planes[j], e)
		}
	}
	for len(p.Repeats) <= j {
		p.Repeats = append(p.Repeats, nil)
	}
	p.Repeats[j] = append(p.Repeats[j], rep.Repeat)
	return nil
}

// decodeEntry reads an entry or, where outer is set, possibly a repetition of entries.
func decodeEntry(r *reader, outer bool) (e named, rep *repetition, err error) {
	var have entryField
	repeats := func() *repetition {
		if rep == nil {
			rep = &repetition{}
		}
		return rep
	}
	err = r.Object(func(key string) (err error) {
		switch key {
		case "repeat":
			repeats().Count, err = r.Integer(1, maxExpanded)
		case "step_by":
			repeats().StepBy, err = r.Integer(-math.MaxInt32, math.MaxInt32)
		case "to_by":
			repeats().ToBy, err = r.Integer(-MaxRanks, MaxRanks)
		case "us_by":
			repeats().ByUS, err = r.Number()
		case "entries":
			err = r.List(maxPeriod, func(int) error {
				e, inner, err := decodeEntry(r, false)
				if err == nil && (inner != nil || e.Joint != "") {
					err = r.Errorf("only entries that are not joint repeat")
				}
				repeats().entries = append(repeats().entries, e)
				return err
			})
		case "kind":
			have |= fieldKind
			var kind string
			kind, err = r.Text()
			e.Kind = Kind(kind)
		case "step":
			have |= fieldStep
			e.Step, err = r.Integer(0, math.MaxInt32)
		case "bytes":
			have |= fieldBytes
			e.Bytes, err = r.Number()
		case "flows":
			have |= fieldFlows
			e.Flows = []int{}
			err = r.List(MaxRanks*MaxRanks, func(int) error {
				v, err := r.Integer(0, MaxRanks*MaxRanks-1)
				e.Flows = append(e.Flows, v)
				return err
			})
		case "joint":
			have |= fieldJoint
			if e.Joint, err = decodeID(r); err == nil && e.Joint == "" {
				err = r.Errorf("is empty")
			}
		case "routes":
			have |= fieldRoutes
			e.Routes = []Route{}
			err = r.List(math.MaxInt, func(int) error {
				route, err := decodeRoute(r)
				e.Routes = append(e.Routes, route)
				return err
			})
		case "to":
			have |= fieldTo
			e.To, e.to, err = r.namedMap()
		case "start_us":
			have |= fieldStart
			e.StartUS, err = r.Number()
		case "end_us":
			have |= fieldEnd
			e.EndUS, err = r.Number()
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return e, rep, err
	}
	if rep == nil {
		return e, nil, checkEntryFields(r, &e.Entry, have)
	}
	return e, rep, checkRepetition(r, rep, have)
}

// checkRepetition reports a repetition that lacks a field, or states what an entry does.
func checkRepetition(r *reader, rep *repetition, have entryField) error {
	switch {
	case have != 0:
		return r.Errorf("an element is an entry or a repetition, not both")
	case rep.Count == 0:
		return r.Errorf("repeat: missing")
	case len(rep.entries) == 0:
		return r.Errorf("entries: missing or empty")
	}
	for _, e := range rep.entries {
		if e.Kind != Transmit && rep.ToBy != 0 && e.to.form == listForm {
			return r.Errorf("to_by: a map that is a list does not move")
		}
	}
	return nil
}

// decodeID reads the id of a joint transmit: a string, or a number in its JSON text.
func decodeID(r *reader) (string, error) {
	if r.Peek() == '"' {
		return r.Text()
	}
	v, err := r.Number()
	return string(appendNumber(nil, v)), err
}

// checkEntryFields reports fields that the kind of e lacks or cannot have.
func checkEntryFields(r *reader, e *Entry, have entryField) error {
	must := fieldKind | fieldStart | fieldEnd
	may := must
	switch {
	case have&fieldKind == 0:
	case e.Kind == Transmit && have&fieldJoint != 0:
		must |= fieldStep | fieldJoint
		may = must | fieldRoutes
	case e.Kind == Transmit:
		must |= fieldStep | fieldBytes
		may = must | fieldFlows
	case e.Kind == Reconfigure || e.Kind == Hold:
		must |= fieldTo
		may = must
	default:
		return r.Errorf("kind: %q is not transmit, reconfigure or hold", e.Kind)
	}
	for i, name := range entryFields {
		switch bit := entryField(1) << i; {
		case must&bit != 0 && have&bit == 0:
			return r.Errorf("%s: missing", name)
		case may&bit == 0 && have&bit != 0 && have&fieldJoint != 0:
			return r.Errorf("%s: not on a joint %s", name, e.Kind)
		case may&bit == 0 && have&bit != 0:
			return r.Errorf("%s: not on a %s", name, e.Kind)
		}
	}
	return nil
}

func decodeRoute(r *reader) (route Route, err error) {
	var flow, bytes, path bool
	err = r.Object(func(key string) (err error) {
		switch key {
		case "flow":
			flow = true
			route.Flow, err = r.pair(0, MaxRanks-1)
		case "bytes":
			bytes = true
			route.Bytes, err = r.Number()
		case "path":
			path = true
			route.Path = [][2]int{}
			err = r.List(MaxRanks*MaxPlanes, func(int) error {
				hop, err := r.pair(0, MaxRanks-1)
				route.Path = append(route.Path, hop)
				return err
			})
		default:
			err = r.Skip()
		}
		return err
	})
	switch {
	case err != nil:
		return route, err
	case !flow:
		return route, r.Errorf("flow: missing")
	case !bytes:
		return route, r.Errorf("bytes: missing")
	case !path:
		return route, r.Errorf("path: missing")
	}
	return route, nil
}

// writable reports why p cannot be written so that it reads back.
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

// EncodePlan writes p as a plan file, one entry a line. It fails where p holds what
// [DecodePlan] would refuse: a number that is not finite, an unknown kind of entry.
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
	b := appendText(fmt.Appendf(nil, `{"version":%d, "planner":`, p.Version), p.Planner)
	b = appendNumber(append(b, `, "cct_us":`...), p.CCTUS)
	b = appendNumber(append(b, `, "lower_bound_us":`...), p.LowerBoundUS)
	if p.BoundProof != "" {
		b = appendText(append(b, `, "bound":`...), p.BoundProof)
	}
	if p.Digest != "" {
		b = appendText(append(b, ",\n \"digest\":"...), p.Digest)
	}
	if w.names != nil {
		b = fmt.Appendf(b, ",\n \"ranks\":%d", max(1, w.names.ranks))
		if len(w.names.list) > 0 {
			b = appendLines(append(b, ",\n \"maps\":"...), "\n  ", len(w.names.list), func(b []byte, i int) []byte { return appendInts(b, w.names.list[i]) })
		}
	}
	b = w.appendMaps(append(b, ",\n \"initial\":"...), p.Initial)
	b = appendLines(append(b, ",\n \"planes\":"...), "\n  ", len(p.Planes), func(b []byte, j int) []byte {
		return w.appendPlane(b, p, j)
	})
	return append(b, "}\n"...)
}

// appendPlane writes the entries of a plane, and in the compact form those that repeat once.
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
	b = append(appendNumber(b, rep.ByUS), `, "entries":`...)
	b = appendLines(b, "\n    ", rep.Period, func(b []byte, k int) []byte { return w.appendEntry(b, &entries[rep.From+k]) })
	return append(b, '}')
}

func (w *writer) appendEntry(b []byte, e *Entry) []byte {
	b = appendText(append(b, `{"kind":`...), string(e.Kind))
	if e.Kind != Transmit {
		b = w.appendMap(append(b, `, "to":`...), e.To)
	} else {
		b = fmt.Appendf(b, `, "step":%d`, e.Step)
		if e.Joint == "" {
			b = appendNumber(append(b, `, "bytes":`...), e.Bytes)
		} else {
			b = appendText(append(b, `, "joint":`...), e.Joint)
		}
		if e.Flows != nil {
			b = appendInts(append(b, `, "flows":`...), e.Flows)
		}
		if e.Routes != nil {
			b = appendLines(append(b, `, "routes":`...), "\n    ", len(e.Routes), func(b []byte, i int) []byte {
				return appendRoute(b, &e.Routes[i])
			})
		}
	}
	b = appendNumber(append(b, `, "start_us":`...), e.StartUS)
	b = appendNumber(append(b, `, "end_us":`...), e.EndUS)
	return append(b, '}')
}

func appendRoute(b []byte, r *Route) []byte {
	b = appendInts(append(b, `{"flow":`...), r.Flow[:])
	b = appendNumber(append(b, `, "bytes":`...), r.Bytes)
	b = appendLines(append(b, `, "path":`...), "", len(r.Path), func(b []byte, i int) []byte {
		return appendInts(b, r.Path[i][:])
	})
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // json.Marshal of a string does not fail
		return append(b, `""`...)
	}
	return append(b, text...)
}
