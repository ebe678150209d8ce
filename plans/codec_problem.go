package plans

import (
	"errors"
	"fmt"
	"math"

	"lightpath/internal/decode"
	"lightpath/internal/encode"
	"lightpath/plans/circuit"
)

// ErrProblem is wrapped by every error about a problem: text that is not one, or values
// that break a rule of the format. The message names the field and position, as in
// "steps[3].to[5]: port 4 already receives from port 1".
var ErrProblem = errors.New("plans: bad problem")

// DecodeProblem reads a problem file. It is strict: an unknown or repeated field, a value
// of another type, and everything that [Problem.Validate] refuses is an error that wraps
// [ErrProblem]. Numbers keep their bits; fields that are left out get the defaults of the
// problem file format.
func DecodeProblem(data []byte) (*Problem, error) {
	r := &reader{Reader: decode.NewReader(data)}
	p := &Problem{Circuits: Simplex}
	err := decodeProblem(r, p)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProblem, err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

func decodeProblem(r *reader, p *Problem) error {
	have, err := r.Fields(decode.Fields{
		"version": decode.Into(&p.Version, r.Between(Version, Version)),
		"ranks": func() (err error) {
			p.Ranks, err = r.Integer(1, MaxRanks)
			r.ranks = p.Ranks
			return err
		},
		"planes":               decode.Into(&p.Planes, r.Between(1, MaxPlanes)),
		"bandwidth_gbps":       &p.BandwidthGbps,
		"alpha_us":             &p.AlphaUS,
		"hop_us":               &p.HopUS,
		"reconfig_us":          &p.ReconfigUS,
		"reconfig_per_port_us": &p.ReconfigPerPort,
		"forwarding":           &p.Forwarding,
		"circuits":             (*string)(&p.Circuits),
		"initial":              decode.Into(&p.Initial, r.permutationsOrNull),
		"final":                decode.Into(&p.Final, func() (Final, error) { return decodeFinal(r) }),
		"steps":                decode.ListInto(r.Reader, &p.Steps, math.MaxInt, r.step),
		"demand": decode.ListInto(r.Reader, &p.Demand, MaxRanks, func() ([]float64, error) {
			return decode.List(r.Reader, MaxRanks, r.Number)
		}),
	})
	if err != nil {
		return err
	}
	if err := r.Need(have, "version", "ranks", "planes", "bandwidth_gbps", "reconfig_us"); err != nil {
		return err
	}
	switch {
	case have["steps"] && have["demand"]:
		return decode.At("demand", "a problem has steps or a demand, not both")
	case !have["steps"] && !have["demand"]:
		return decode.At("steps", "missing: a problem has steps or a demand")
	}
	return nil
}

func decodeFinal(r *reader) (f Final, err error) {
	if r.Null() {
		return f, nil
	}
	if r.Peek() != '"' {
		f.Kind = FinalGiven
		f.Maps, err = r.permutations()
		return f, err
	}
	f.Kind = FinalInitial
	word, err := r.Text()
	if err == nil && word != "initial" {
		err = r.Errorf("%q is not null, \"initial\" or a list of maps", word)
	}
	return f, err
}

func (r *reader) step() (s Step, err error) {
	have, err := r.Fields(decode.Fields{
		"bytes": &s.Bytes,
		"to":    decode.Into(&s.To, r.permutation),
		"flows": decode.ListInto(r.Reader, &s.Flows, MaxRanks*MaxRanks, r.pair),
	})
	switch {
	case err != nil:
		return s, err
	case !have["bytes"]:
		return s, r.Errorf("bytes: missing")
	case have["to"] && have["flows"]:
		return s, r.Errorf("flows: a step has to or flows, not both")
	case !have["to"] && !have["flows"]:
		return s, r.Errorf("to: missing: a step has to or flows")
	}
	return s, nil
}

// reader reads the parts that the formats of this package share.
type reader struct {
	*decode.Reader
	ranks int // 0 until they are known
	maps  map[mapName]circuit.Permutation
}

// permutation reads a map: a list of ports or, in the compact form, its name. That it is a permutation
// is checked later.
func (r *reader) permutation() (circuit.Permutation, error) {
	if r.Peek() == '{' {
		p, _, err := r.namedMap()
		return p, err
	}
	p := make(circuit.Permutation, 0, r.ranks)
	err := r.List(MaxRanks, func(int) error {
		v, err := r.Integer(circuit.Dark, MaxRanks-1)
		p = append(p, v)
		return err
	})
	return p, err
}

// permutationsOrNull reads a list of maps or null.
func (r *reader) permutationsOrNull() ([]circuit.Permutation, error) {
	if r.Null() {
		return nil, nil
	}
	return r.permutations()
}

func (r *reader) permutations() ([]circuit.Permutation, error) {
	return decode.List(r.Reader, MaxPlanes, r.permutation)
}

// pair reads a list of two ranks, or of a plane and a rank.
func (r *reader) pair() ([2]int, error) { return decode.Pair(r.Reader, r.Between(0, MaxRanks-1)) }

// EncodeProblem writes p as a problem file with every field, one step or matrix row a
// line. It fails if p is not valid, so DecodeProblem reads everything that it writes.
func EncodeProblem(p *Problem) ([]byte, error) { return encodeProblem(p, &writer{}) }

// EncodeCompactProblem is EncodeProblem in the compact form.
func EncodeCompactProblem(p *Problem) ([]byte, error) {
	return encodeProblem(p, &writer{names: &names{}})
}

func encodeProblem(p *Problem, w *writer) ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	b := fmt.Appendf(nil, `{"version":%d, "ranks":%d, "planes":%d, `, p.Version, p.Ranks, p.Planes)
	for _, f := range p.numbers() {
		b = fmt.Appendf(b, `"%s":`, f.name)
		b = append(encode.Number(b, f.value), ", "...)
	}
	b = fmt.Appendf(b, "\"forwarding\":%t, \"circuits\":\"%s\",\n \"initial\":", p.Forwarding, p.Circuits)
	b = w.appendMaps(b, p.Initial)
	b = append(b, ", \"final\":"...)
	switch p.Final.Kind {
	case FinalInitial:
		b = append(b, `"initial"`...)
	case FinalGiven:
		b = w.appendMaps(b, p.Final.Maps)
	default:
		b = append(b, "null"...)
	}
	if p.Demand != nil {
		b = encode.List(append(b, ",\n \"demand\":"...), "\n  ", len(p.Demand), func(b []byte, i int) []byte {
			return encode.List(b, "", len(p.Demand[i]), func(b []byte, j int) []byte { return encode.Number(b, p.Demand[i][j]) })
		})
	} else {
		b = encode.List(append(b, ",\n \"steps\":"...), "\n  ", len(p.Steps), func(b []byte, i int) []byte {
			return w.appendStep(b, &p.Steps[i])
		})
	}
	return append(b, "}\n"...), nil
}

// writer writes maps: by their names if names is not nil, else as lists.
type writer struct{ names *names }

func (w *writer) appendMap(b []byte, p circuit.Permutation) []byte {
	if w.names != nil {
		if name := w.names.of(p); name.form != listForm {
			return fmt.Appendf(b, `{"%s":%d}`, formNames[name.form], name.number)
		}
	}
	return encode.Ints(b, p)
}

func (w *writer) appendStep(b []byte, s *Step) []byte {
	b = append(encode.Number(append(b, `{"bytes":`...), s.Bytes), ", "...)
	if s.To != nil {
		b = w.appendMap(append(b, `"to":`...), s.To)
	} else {
		b = append(b, `"flows":`...)
		b = encode.List(b, "", len(s.Flows), func(b []byte, i int) []byte { return encode.Ints(b, s.Flows[i][:]) })
	}
	return append(b, '}')
}

// appendMaps writes one map a line, or null.
func (w *writer) appendMaps(b []byte, maps []circuit.Permutation) []byte {
	if maps == nil {
		return append(b, "null"...)
	}
	return encode.List(b, "\n  ", len(maps), func(b []byte, i int) []byte { return w.appendMap(b, maps[i]) })
}
