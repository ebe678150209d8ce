package plans

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"

	"lightpath/internal/encode"
	"lightpath/plans/circuit"
)

// canonical writes the RFC 8785 (JCS) form of plans and problems: sorted keys, no white space, numbers and strings as
// ECMAScript writes them. It writes piece by piece, because the text of a long plan may take gigabytes. It keeps the
// text of a map for other uses of the same slice.
type canonical struct {
	ctx   context.Context // when it ends, the output is incomplete
	out   io.Writer
	buf   []byte
	texts map[mapKey][]byte
	kept  int    // bytes in texts
	ranks int    // of base
	base  []byte // 0,1,...,ranks-1
	at    []int  // where each number begins in base
}

const (
	canonicalBuffer = 1 << 16
	canonicalTexts  = 128 << 20
)

// flush writes the buffer.
func (c *canonical) flush() {
	_, _ = c.out.Write(c.buf) // a hash, which takes everything
	c.buf = c.buf[:0]
}

func (c *canonical) raw(text string) { c.buf = append(c.buf, text...) }

// number writes a field with a number.
func (c *canonical) number(field string, v float64) {
	c.raw(field)
	c.buf = appendCanonicalNumber(c.buf, v)
}

func (c *canonical) list(n int, elem func(i int)) {
	c.raw("[")
	for i := range n {
		if i > 0 {
			c.raw(",")
		}
		if elem(i); len(c.buf) > canonicalBuffer {
			if c.flush(); c.ctx.Err() != nil {
				return
			}
		}
	}
	c.raw("]")
}

func (c *canonical) integers(v []int) {
	c.list(len(v), func(i int) { c.buf = strconv.AppendInt(c.buf, int64(v[i]), 10) })
}

// permutation writes a map. A shift is a rotation of the list 0, 1, ..., copied from base. The text of any other slice
// is copied if the slice has been written before.
func (c *canonical) permutation(p circuit.Permutation) {
	if c.ctx.Err() != nil {
		return
	}
	if d, ok := p.Distance(); ok {
		c.count(len(p))
		c.raw("[")
		c.flush()
		_, _ = c.out.Write(c.base[c.at[d]:])
		if d > 0 {
			c.raw(",")
			c.flush()
			_, _ = c.out.Write(c.base[:c.at[d]-1])
		}
		c.raw("]")
		return
	}
	text, ok := c.texts[keyOf(p)]
	if !ok {
		text = encode.Ints(nil, p)
		if c.kept += len(text); c.kept < canonicalTexts {
			c.texts[keyOf(p)] = text
		}
	}
	c.flush()
	_, _ = c.out.Write(text)
}

// count makes base the list of the first n numbers.
func (c *canonical) count(n int) {
	if c.ranks == n {
		return
	}
	c.ranks, c.base, c.at = n, nil, make([]int, n)
	for i := range n {
		if i > 0 {
			c.base = append(c.base, ',')
		}
		c.at[i] = len(c.base)
		c.base = strconv.AppendInt(c.base, int64(i), 10)
	}
}

func (c *canonical) permutations(maps []circuit.Permutation) {
	if maps == nil {
		c.raw("null")
		return
	}
	c.list(len(maps), func(i int) { c.permutation(maps[i]) })
}

// plan writes what [EncodePlan] writes, without the digest.
func (c *canonical) plan(p *Plan) {
	c.raw("{")
	if p.BoundProof != "" {
		c.raw(`"bound":`)
		c.buf = appendCanonicalText(c.buf, p.BoundProof)
		c.raw(",")
	}
	c.number(`"cct_us":`, p.CCTUS)
	c.raw(`,"initial":`)
	c.permutations(p.Initial)
	c.number(`,"lower_bound_us":`, p.LowerBoundUS)
	c.raw(`,"planes":`)
	c.list(len(p.Planes), func(j int) {
		c.list(len(p.Planes[j]), func(i int) { c.entry(&p.Planes[j][i]) })
	})
	c.raw(`,"planner":`)
	c.buf = appendCanonicalText(c.buf, p.Planner)
	c.number(`,"version":`, float64(p.Version))
	c.raw("}")
}

func (c *canonical) entry(e *Entry) {
	c.raw("{")
	if e.Kind == Transmit && e.Joint == "" {
		c.number(`"bytes":`, e.Bytes)
		c.raw(",")
	}
	c.number(`"end_us":`, e.EndUS)
	if e.Kind == Transmit && e.Flows != nil {
		c.raw(`,"flows":`)
		c.integers(e.Flows)
	}
	if e.Kind == Transmit && e.Joint != "" {
		c.raw(`,"joint":`)
		c.buf = appendCanonicalText(c.buf, e.Joint)
	}
	c.raw(`,"kind":`)
	c.buf = appendCanonicalText(c.buf, string(e.Kind))
	if e.Kind == Transmit && e.Routes != nil {
		c.raw(`,"routes":`)
		c.list(len(e.Routes), func(i int) { c.route(&e.Routes[i]) })
	}
	c.number(`,"start_us":`, e.StartUS)
	if e.Kind == Transmit {
		c.number(`,"step":`, float64(e.Step))
	} else {
		c.raw(`,"to":`)
		c.permutation(e.To)
	}
	c.raw("}")
}

func (c *canonical) route(r *Route) {
	c.number(`{"bytes":`, r.Bytes)
	c.raw(`,"flow":`)
	c.integers(r.Flow[:])
	c.raw(`,"path":`)
	c.list(len(r.Path), func(i int) { c.integers(r.Path[i][:]) })
	c.raw("}")
}

// problem writes what [EncodeProblem] writes.
func (c *canonical) problem(p *Problem) {
	c.number(`{"alpha_us":`, p.AlphaUS)
	c.number(`,"bandwidth_gbps":`, p.BandwidthGbps)
	c.raw(`,"circuits":`)
	c.buf = appendCanonicalText(c.buf, string(p.Circuits))
	if p.Demand != nil {
		c.raw(`,"demand":`)
		c.list(len(p.Demand), func(r int) {
			c.list(len(p.Demand[r]), func(s int) { c.buf = appendCanonicalNumber(c.buf, p.Demand[r][s]) })
		})
	}
	c.raw(`,"final":`)
	switch p.Final.Kind {
	case FinalInitial:
		c.raw(`"initial"`)
	case FinalGiven:
		c.permutations(p.Final.Maps)
	default:
		c.raw("null")
	}
	c.raw(`,"forwarding":` + strconv.FormatBool(p.Forwarding))
	c.number(`,"hop_us":`, p.HopUS)
	c.raw(`,"initial":`)
	c.permutations(p.Initial)
	c.number(`,"planes":`, float64(p.Planes))
	c.number(`,"ranks":`, float64(p.Ranks))
	c.number(`,"reconfig_per_port_us":`, p.ReconfigPerPort)
	c.number(`,"reconfig_us":`, p.ReconfigUS)
	if p.Demand == nil {
		c.raw(`,"steps":`)
		c.list(len(p.Steps), func(i int) { c.step(&p.Steps[i]) })
	}
	c.number(`,"version":`, float64(p.Version))
	c.raw("}")
}

func (c *canonical) step(s *Step) {
	c.number(`{"bytes":`, s.Bytes)
	if s.To != nil {
		c.raw(`,"to":`)
		c.permutation(s.To)
	} else {
		c.raw(`,"flows":`)
		c.list(len(s.Flows), func(i int) { c.integers(s.Flows[i][:]) })
	}
	c.raw("}")
}

// appendCanonicalNumber writes v as ECMAScript's Number.prototype.toString does.
func appendCanonicalNumber(b []byte, v float64) []byte {
	begin := len(b)
	b = encode.Number(b, v)
	if e := bytes.LastIndexByte(b[begin:], 'e') + begin; e > begin && b[e+2] == '0' { // Go writes 1e-07
		b = append(b[:e+2], b[e+3:]...)
	}
	return b
}

func appendCanonicalText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case strings.IndexByte("\b\t\n\f\r", c) >= 0:
			b = append(b, '\\', "btnvfr"[c-'\b'])
		default:
			b = append(append(b, `\u00`...), strconv.FormatInt(int64(c)+0x100, 16)[1:]...)
		}
	}
	return append(b, '"')
}
