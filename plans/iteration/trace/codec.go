package trace

import (
	"fmt"

	"lightpath/internal/decode"
	"lightpath/internal/encode"
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
	b := encode.Text(fmt.Appendf(nil, `{"version":%d, "name":`, Version), t.Name)
	b = encode.Number(fmt.Appendf(b, `, "ranks":%d, "compute_us":`, t.Ranks), t.ComputeUS)
	b = encode.List(append(b, ",\n \"communicators\":"...), "\n  ", len(t.Communicators), func(b []byte, i int) []byte {
		c := &t.Communicators[i]
		b = append(encode.Text(append(b, `{"name":`...), c.Name), `, "groups":`...)
		return append(encode.List(b, "", len(c.Groups), func(b []byte, g int) []byte {
			return encode.Ints(b, c.Groups[g])
		}), '}')
	})
	b = encode.List(append(b, ",\n \"calls\":"...), "\n  ", len(t.Calls), func(b []byte, i int) []byte {
		return t.Calls[i].encode(b)
	})
	return append(b, "}\n"...)
}

func (c *Call) encode(b []byte) []byte {
	b = append(b, '{')
	if c.Name != "" {
		b = append(encode.Text(append(b, `"name":`...), c.Name), ", "...)
	}
	b = fmt.Appendf(b, `"communicator":%d, `, c.Communicator)
	if c.Collective != "" {
		b = encode.Text(append(b, `"collective":`...), c.Collective)
		b = append(encode.Text(append(b, `, "algorithm":`...), c.Algorithm), ", "...)
	}
	if c.Root != 0 {
		b = fmt.Appendf(b, `"root":%d, `, c.Root)
	}
	if c.Flows != nil {
		b = encode.List(append(b, `"flows":`...), "", len(c.Flows), func(b []byte, k int) []byte {
			return encode.Ints(b, c.Flows[k][:])
		})
		b = append(b, ", "...)
	}
	if c.FlowBytes != nil {
		b = encode.List(append(b, `"flow_bytes":`...), "", len(c.FlowBytes), func(b []byte, k int) []byte {
			return encode.Number(b, c.FlowBytes[k])
		})
		b = append(b, ", "...)
	}
	b = append(encode.Number(append(b, `"bytes":`...), c.Bytes), `, "after":`...)
	b = encode.List(b, "", len(c.After), func(b []byte, k int) []byte {
		a := &c.After[k]
		return append(encode.Number(fmt.Appendf(b, "[%d,", a.Call), a.GapUS), ']')
	})
	if c.TailUS != 0 {
		b = encode.Number(append(b, `, "tail_us":`...), c.TailUS)
	}
	return append(b, '}')
}
