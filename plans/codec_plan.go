package plans

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

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
	r := &reader{jsonread.New(data)}
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
		case "planes":
			planes = true
			p.Planes = [][]Entry{}
			err = r.List(MaxPlanes, func(int) error {
				entries := []Entry{}
				err := r.List(math.MaxInt, func(int) error {
					e, err := decodeEntry(r)
					entries = append(entries, e)
					return err
				})
				p.Planes = append(p.Planes, entries)
				return err
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

func decodeEntry(r *reader) (e Entry, err error) {
	var have entryField
	err = r.Object(func(key string) (err error) {
		switch key {
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
			e.To, err = r.permutation()
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
		return e, err
	}
	return e, checkEntryFields(r, &e, have)
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

// EncodePlan writes p as a plan file, one entry a line. It fails where p holds what
// [DecodePlan] would refuse: a number that is not finite, an unknown kind of entry.
func EncodePlan(p *Plan) ([]byte, error) {
	if p.Version != Version {
		return nil, fmt.Errorf("%w: version: %d is not %d", ErrPlan, p.Version, Version)
	}
	b := appendText(fmt.Appendf(nil, `{"version":%d, "planner":`, p.Version), p.Planner)
	b = appendNumber(append(b, `, "cct_us":`...), p.CCTUS)
	b = appendNumber(append(b, `, "lower_bound_us":`...), p.LowerBoundUS)
	if p.BoundProof != "" {
		b = appendText(append(b, `, "bound":`...), p.BoundProof)
	}
	if p.Digest != "" {
		b = appendText(append(b, ",\n \"digest\":"...), p.Digest)
	}
	b = appendMaps(append(b, ",\n \"initial\":"...), p.Initial)
	b = appendLines(append(b, ",\n \"planes\":"...), "\n  ", len(p.Planes), func(b []byte, j int) []byte {
		return appendLines(b, "\n   ", len(p.Planes[j]), func(b []byte, i int) []byte {
			return appendEntry(b, &p.Planes[j][i])
		})
	})
	b = append(b, "}\n"...)
	// What is written must read back: the decoder is the one judge of the format.
	if _, err := DecodePlan(b); err != nil {
		return nil, err
	}
	return b, nil
}

func appendEntry(b []byte, e *Entry) []byte {
	b = appendText(append(b, `{"kind":`...), string(e.Kind))
	if e.Kind != Transmit {
		b = appendInts(append(b, `, "to":`...), e.To)
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
