package trace

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"lightpath/internal/decode"
)

// Decode reads a trace file. It is strict. It refuses unknown or repeated fields, values of another type, and
// everything that [Trace.Validate] refuses. The error wraps [ErrTrace] and names the field or the line.
func Decode(data []byte) (*Trace, error) {
	r := decode.NewReader(data)
	t, err := Read(r)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTrace, err)
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// Read reads a trace as the value of a field of another format. It does not call [Trace.Validate].
func Read(r *decode.Reader) (*Trace, error) {
	t, version := &Trace{}, 0
	d := decoder{r}
	have, err := r.Fields(decode.Fields{
		"version":       decode.Into(&version, r.Between(Version, Version)),
		"name":          &t.Name,
		"ranks":         decode.Into(&t.Ranks, r.Between(1, MaxRanks)),
		"compute_us":    &t.ComputeUS,
		"communicators": decode.ListInto(r, &t.Communicators, maxCommunicators, d.communicator),
		"calls": func() error {
			return r.List(MaxCalls, func(i int) error {
				c, err := d.call(i)
				t.Calls = append(t.Calls, c)
				return err
			})
		},
	})
	if err == nil {
		err = r.Need(have, "version", "ranks", "communicators", "calls")
	}
	return t, err
}

type decoder struct{ *decode.Reader }

func (d decoder) communicator() (c Communicator, err error) {
	have, err := d.Fields(decode.Fields{
		"name": &c.Name,
		"groups": decode.ListInto(d.Reader, &c.Groups, MaxRanks, func() ([]int, error) {
			return decode.List(d.Reader, MaxRanks, d.Between(0, MaxRanks-1))
		}),
	})
	if err == nil {
		err = d.Need(have, "groups")
	}
	return c, err
}

// call reads call i. Without after, it comes gap_us after the call before.
func (d decoder) call(i int) (c Call, err error) {
	gap := 0.0
	have, err := d.Fields(decode.Fields{
		"name":         &c.Name,
		"communicator": decode.Into(&c.Communicator, d.Between(0, maxCommunicators-1)),
		"collective":   &c.Collective,
		"algorithm":    &c.Algorithm,
		"root":         decode.Into(&c.Root, d.Between(0, MaxRanks-1)),
		"flows": decode.ListInto(d.Reader, &c.Flows, maxFlows, func() ([2]int, error) {
			return decode.Pair(d.Reader, d.Between(0, MaxRanks-1))
		}),
		"flow_bytes": decode.ListInto(d.Reader, &c.FlowBytes, maxFlows, d.Number),
		"bytes":      &c.Bytes,
		"gap_us":     &gap,
		"after":      decode.ListInto(d.Reader, &c.After, MaxAfter, d.after),
		"tail_us":    &c.TailUS,
	})
	switch {
	case err != nil:
		return c, err
	case have["after"] && have["gap_us"]:
		return c, d.Errorf("gap_us: a call has gap_us or after, not both")
	case !have["after"]:
		c.After = []After{{i - 1, gap}}
	}
	return c, d.Need(have, "bytes")
}

// after reads [call, gap_us].
func (d decoder) after() (a After, err error) {
	n := 0
	err = d.List(2, func(i int) (err error) {
		if n++; i == 0 {
			a.Call, err = d.Integer(Begin, MaxCalls-1)
		} else {
			a.GapUS, err = d.Number()
		}
		return err
	})
	if err == nil && n != 2 {
		err = d.Errorf("has %d elements, want [call, gap_us]", n)
	}
	return a, err
}

// Encode writes t as a trace file, one communicator or call a line.
func (t *Trace) Encode() []byte {
	b := fmt.Appendf(nil, `{"version":%d, "name":%s, "ranks":%d, "compute_us":%s,`, Version, text(t.Name), t.Ranks,
		number(t.ComputeUS))
	b = append(b, "\n \"communicators\":["...)
	for i, c := range t.Communicators {
		b = line(b, i)
		b = fmt.Appendf(b, `{"name":%s, "groups":[`, text(c.Name))
		for g, ranks := range c.Groups {
			b = comma(b, g)
			b = appendInts(b, ranks)
		}
		b = append(b, "]}"...)
	}
	b = append(b, "],\n \"calls\":["...)
	for i := range t.Calls {
		b = line(b, i)
		b = t.Calls[i].encode(b)
	}
	return append(b, "]}\n"...)
}

func (c *Call) encode(b []byte) []byte {
	b = append(b, '{')
	if c.Name != "" {
		b = fmt.Appendf(b, `"name":%s, `, text(c.Name))
	}
	b = fmt.Appendf(b, `"communicator":%d, `, c.Communicator)
	if c.Collective != "" {
		b = fmt.Appendf(b, `"collective":%s, "algorithm":%s, `, text(c.Collective), text(c.Algorithm))
	}
	if c.Root != 0 {
		b = fmt.Appendf(b, `"root":%d, `, c.Root)
	}
	if c.Flows != nil {
		b = append(b, `"flows":[`...)
		for k, f := range c.Flows {
			b = comma(b, k)
			b = appendInts(b, f[:])
		}
		b = append(b, "], "...)
	}
	if c.FlowBytes != nil {
		b = append(b, `"flow_bytes":[`...)
		for k, bytes := range c.FlowBytes {
			b = append(comma(b, k), number(bytes)...)
		}
		b = append(b, "], "...)
	}
	b = fmt.Appendf(b, `"bytes":%s, "after":[`, number(c.Bytes))
	for k, a := range c.After {
		b = comma(b, k)
		b = fmt.Appendf(b, "[%d,%s]", a.Call, number(a.GapUS))
	}
	b = append(b, ']')
	if c.TailUS != 0 {
		b = fmt.Appendf(b, `, "tail_us":%s`, number(c.TailUS))
	}
	return append(b, '}')
}

// line begins element i of a list that has a line per element.
func line(b []byte, i int) []byte { return append(comma(b, i), "\n  "...) }

func comma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

func appendInts(b []byte, list []int) []byte {
	b = append(b, '[')
	for i, v := range list {
		b = strconv.AppendInt(comma(b, i), int64(v), 10)
	}
	return append(b, ']')
}

// number writes v with all its bits, without an exponent where people would write none.
func number(v float64) string {
	if a := math.Abs(v); a == 0 || a >= 1e-4 && a < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// text quotes s for JSON; bytes that are not UTF-8 become U+FFFD.
func text(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can be written
	}
	return string(b)
}
