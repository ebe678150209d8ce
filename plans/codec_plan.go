package plans

import (
	"errors"
	"fmt"
	"math"

	"lightpath/internal/decode"
	"lightpath/internal/encode"
)

// ErrPlan is wrapped by every error about text that is not a plan file. Package plans/check reports whether a plan is
// feasible.
var ErrPlan = errors.New("plans: bad plan file")

// DecodePlan reads a plan file. It skips unknown fields, since later versions may add some. Known fields must have the
// right type and belong to the kind of their entry. version, cct_us and planes are required. It does not check ranks,
// steps and times, because that needs the problem (plans/check). Errors wrap [ErrPlan].
func DecodePlan(data []byte) (*Plan, error) {
	r := decode.NewReader(data)
	p, err := ReadPlan(r)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	return p, nil
}

// ReadPlan is [DecodePlan] for a plan that is part of another file. Its errors do not wrap [ErrPlan].
func ReadPlan(r *decode.Reader) (*Plan, error) {
	p := &Plan{}
	return p, decodePlan(&reader{Reader: r}, p)
}

func decodePlan(r *reader, p *Plan) error {
	have := make(map[string]bool)
	err := r.Object(func(key string) (err error) {
		have[key] = true
		switch key {
		case "version":
			p.Version, err = r.Integer(Version, Version)
		case "planner":
			p.Planner, err = r.Text()
		case "cct_us":
			p.CCTUS, err = r.Number()
		case "lower_bound_us":
			p.LowerBoundUS, err = r.Number()
		case "bound":
			p.BoundProof, err = r.Text()
		case "initial":
			p.Initial, err = r.permutationsOrNull()
		case "ranks":
			r.ranks, err = r.Integer(1, MaxRanks)
		case "maps":
			err = r.places()
		case "planes":
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
	if err != nil {
		return err
	}
	return r.Need(have, "version", "cct_us", "planes")
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

// repetition holds the fields of an element of a plane's list that repeats entries.
type repetition struct {
	Repeat
	entries []named
}

// named is an entry and the name of its map, if it has one.
type named struct {
	Entry
	to mapName
}

// decodeEntries reads an element of a plane's list: an entry, or entries that repeat.
func decodeEntries(r *reader, p *Plan, j int, expanded *int) error {
	e, rep, err := decodeElement(r)
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

// decodeElement reads an entry or a repetition of entries. rep is nil for an entry.
func decodeElement(r *reader) (e named, rep *repetition, err error) {
	var have entryField
	err = r.Object(func(key string) error {
		switch key {
		case "repeat", "step_by", "to_by", "us_by", "entries":
			if rep == nil {
				rep = &repetition{}
			}
			return rep.decode(r, key)
		}
		return e.decode(r, key, &have)
	})
	if err != nil {
		return e, rep, err
	}
	if rep == nil {
		return e, nil, checkEntryFields(r, &e.Entry, have)
	}
	return e, rep, checkRepetition(r, rep, have)
}

// decode reads a field of a repetition.
func (rep *repetition) decode(r *reader, key string) (err error) {
	switch key {
	case "repeat":
		rep.Count, err = r.Integer(1, maxExpanded)
	case "step_by":
		rep.StepBy, err = r.Integer(-math.MaxInt32, math.MaxInt32)
	case "to_by":
		rep.ToBy, err = r.Integer(-maxExpanded, maxExpanded)
	case "us_by":
		rep.ByUS, err = r.Number()
	case "entries":
		err = r.List(maxPeriod, func(int) error {
			e, inner, err := decodeElement(r)
			if err == nil && (inner != nil || e.Joint != "") {
				err = r.Errorf("only entries that are not joint repeat")
			}
			rep.entries = append(rep.entries, e)
			return err
		})
	}
	return err
}

// decode reads a field of an entry and adds it to have. It skips unknown fields.
func (e *named) decode(r *reader, key string, have *entryField) (err error) {
	switch key {
	case "kind":
		*have |= fieldKind
		var kind string
		kind, err = r.Text()
		e.Kind = Kind(kind)
	case "step":
		*have |= fieldStep
		e.Step, err = r.Integer(0, math.MaxInt32)
	case "bytes":
		*have |= fieldBytes
		e.Bytes, err = r.Number()
	case "flows":
		*have |= fieldFlows
		e.Flows, err = decode.List(r.Reader, MaxRanks*MaxRanks, r.Between(0, MaxRanks*MaxRanks-1))
	case "joint":
		*have |= fieldJoint
		if e.Joint, err = decodeID(r); err == nil && e.Joint == "" {
			err = r.Errorf("is empty")
		}
	case "routes":
		*have |= fieldRoutes
		e.Routes, err = decode.List(r.Reader, math.MaxInt, r.route)
	case "to":
		*have |= fieldTo
		e.To, e.to, err = r.namedMap()
	case "start_us":
		*have |= fieldStart
		e.StartUS, err = r.Number()
	case "end_us":
		*have |= fieldEnd
		e.EndUS, err = r.Number()
	default:
		err = r.Skip()
	}
	return err
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
	return string(encode.Number(nil, v)), err
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

func (r *reader) route() (route Route, err error) {
	have := make(map[string]bool, 3)
	err = r.Object(func(key string) (err error) {
		have[key] = true
		switch key {
		case "flow":
			route.Flow, err = r.pair()
		case "bytes":
			route.Bytes, err = r.Number()
		case "path":
			route.Path, err = decode.List(r.Reader, MaxRanks*MaxPlanes, r.pair)
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return route, err
	}
	return route, r.Need(have, "flow", "bytes", "path")
}
