package iteration

import (
	"bytes"
	"fmt"
	"math"

	"lightpath/internal/decode"
	"lightpath/internal/encode"
	"lightpath/plans"
	"lightpath/plans/iteration/trace"
)

// Decode reads the file of an iteration plan. It is strict about the fields of the iteration and of its trace; plans of
// calls are read as [plans.DecodePlan] reads them. Whether the plan is feasible, package check says. Errors wrap
// [ErrPlan].
func Decode(data []byte) (*Plan, error) {
	p := &Plan{}
	r := decode.NewReader(data)
	err := read(r, p)
	if err == nil {
		err = r.End()
	}
	if err == nil {
		err = p.Trace.Validate()
	}
	if err == nil {
		err = p.fits()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	return p, nil
}

func read(r *decode.Reader, p *Plan) error {
	version := 0
	have, err := r.Fields(decode.Fields{
		"version":        decode.Into(&version, r.Between(Version, Version)),
		"iteration_us":   &p.IterationUS,
		"compute_us":     &p.ComputeUS,
		"lower_bound_us": &p.LowerBoundUS,
		"fabric":         &p.Fabric,
		"digest":         &p.Digest,
		"trace":          decode.Into(&p.Trace, func() (*trace.Trace, error) { return trace.Read(r) }),
		"plans": decode.ListInto(r, &p.Plans, trace.MaxCalls, func() (*plans.Plan, error) {
			return plans.ReadPlan(r)
		}),
		"calls": decode.ListInto(r, &p.Calls, trace.MaxCalls, func() (Placed, error) { return readPlaced(r) }),
	})
	if err != nil {
		return err
	}
	return r.Need(have, "version", "iteration_us", "compute_us", "trace", "plans", "calls")
}

func readPlaced(r *decode.Reader) (c Placed, err error) {
	have, err := r.Fields(decode.Fields{
		"call":     decode.Into(&c.Call, r.Between(0, trace.MaxCalls-1)),
		"plan":     decode.Into(&c.Plan, r.Between(OnPackets, trace.MaxCalls-1)),
		"start_us": &c.StartUS,
		"end_us":   &c.EndUS,
		"switches": decode.ListInto(r, &c.Switches, plans.MaxPlanes, func() (Switch, error) { return readSwitch(r) }),
	})
	if err != nil {
		return c, err
	}
	return c, r.Need(have, "call", "plan", "start_us", "end_us")
}

func readSwitch(r *decode.Reader) (s Switch, err error) {
	have, err := r.Fields(decode.Fields{
		"plane":    decode.Into(&s.Plane, r.Between(0, plans.MaxPlanes-1)),
		"start_us": &s.StartUS,
		"end_us":   &s.EndUS,
	})
	if err != nil {
		return s, err
	}
	return s, r.Need(have, "plane", "start_us", "end_us")
}

// fits reports parts that contradict each other, so that methods of the plan do not fail.
func (p *Plan) fits() error {
	if len(p.Calls) != len(p.Trace.Calls) {
		return decode.At("calls", "%d, and the trace has %d", len(p.Calls), len(p.Trace.Calls))
	}
	for i, one := range p.Plans {
		if len(one.Initial) != len(one.Planes) {
			return decode.At(fmt.Sprintf("plans[%d].initial", i), "has %d maps for %d planes", len(one.Initial), len(one.Planes))
		}
	}
	for i := range p.Calls {
		c := &p.Calls[i]
		path := fmt.Sprintf("calls[%d]", i)
		switch {
		case c.Call >= len(p.Trace.Calls):
			return decode.At(path+".call", "the trace has no call %d", c.Call)
		case c.Plan >= len(p.Plans):
			return decode.At(path+".plan", "there is no plan %d", c.Plan)
		case c.Plan == OnPackets && len(c.Switches) > 0:
			return decode.At(path+".switches", "a call on packet planes needs no circuits")
		}
		for k, s := range c.Switches {
			if s.Plane >= len(p.Plans[c.Plan].Planes) {
				return decode.At(fmt.Sprintf("%s.switches[%d].plane", path, k), "the plan has no plane %d", s.Plane)
			}
		}
	}
	return nil
}

// Encode writes p as a file. It fails if a number is not finite or a plan of a call cannot be written.
func (p *Plan) Encode() ([]byte, error) {
	for _, v := range []float64{p.IterationUS, p.ComputeUS, p.LowerBoundUS} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%w: iteration_us, compute_us, lower_bound_us: %v is not finite", ErrPlan, v)
		}
	}
	b := encode.Number(fmt.Appendf(nil, `{"version":%d, "iteration_us":`, Version), p.IterationUS)
	b = encode.Number(append(b, `, "compute_us":`...), p.ComputeUS)
	b = encode.Number(append(b, `, "lower_bound_us":`...), p.LowerBoundUS)
	b = append(encode.Text(append(b, `, "fabric":`...), p.Fabric), ',')
	if p.Digest != "" {
		b = append(encode.Text(append(b, ` "digest":`...), p.Digest), ',')
	}
	b = append(b, "\n\"trace\":"...)
	b = append(b, bytes.TrimSpace(p.Trace.Encode())...)
	var err error
	b = encode.List(append(b, ",\n\"plans\":"...), "\n", len(p.Plans), func(b []byte, i int) []byte {
		file, failed := plans.EncodeCompactPlan(p.Plans[i])
		if failed != nil && err == nil {
			err = fmt.Errorf("%w: plans[%d]: %w", ErrPlan, i, failed)
		}
		return append(b, bytes.TrimSpace(file)...)
	})
	if err != nil {
		return nil, err
	}
	b = encode.List(append(b, ",\n\"calls\":"...), "\n ", len(p.Calls), func(b []byte, i int) []byte {
		return p.Calls[i].encode(b)
	})
	return append(b, "}\n"...), nil
}

func (c *Placed) encode(b []byte) []byte {
	b = appendTimes(fmt.Appendf(b, `{"call":%d, "plan":%d`, c.Call, c.Plan), c.StartUS, c.EndUS)
	b = encode.List(append(b, `, "switches":`...), "", len(c.Switches), func(b []byte, k int) []byte {
		s := &c.Switches[k]
		return append(appendTimes(fmt.Appendf(b, `{"plane":%d`, s.Plane), s.StartUS, s.EndUS), '}')
	})
	return append(b, '}')
}

func appendTimes(b []byte, start, end float64) []byte {
	b = encode.Number(append(b, `, "start_us":`...), start)
	return encode.Number(append(b, `, "end_us":`...), end)
}
