package milp

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// ErrUnsupported says that the paper's program does not describe a problem.
var ErrUnsupported = errors.New("milp: not a problem of SWOT's program")

// WriteSWOT writes SWOT's program for p in the LP format. Its optimum is the least CCT in
// us over all plans that transmit on direct circuits.
//
// Beyond the paper's text: products with a binary are linearised with big-M. Its constant is a time by which a plan
// that reconfigures before every step has ended. Volumes d are in us of work on one plane. The paper leaves last_cfg
// before the first step open; here p.Initial says whether it is free, a pattern's number or 0 (none). Steps of no bytes
// are left out. The program has no final state, because it is reached after the last transmission, and the objective
// ends there. Two steps have the same configuration where their patterns are equal; a pattern that is part of another
// counts as different, as in the paper.
//
// Errors wrap [ErrUnsupported]. The program cannot express demands, steps that are no permutation, interleaved planes,
// and costs per port.
func WriteSWOT(w io.Writer, p *plans.Problem) error {
	m, err := newModel(p)
	if err != nil {
		return err
	}
	out := &writer{w: bufio.NewWriter(w)}
	m.write(out)
	if out.err != nil {
		return fmt.Errorf("milp: %w", out.err)
	}
	return out.w.Flush()
}

// model is the parameters of the program, in the paper's names.
type model struct {
	k       int       // planes
	work    []float64 // m_i / B, us on one plane
	cfg     []int     // cfg_i, from 1
	first   []int     // last_cfg before the first step, per plane; nil: free
	configs int
	lat     float64 // T_lat
	recfg   float64 // T_recfg
	horizon float64 // big M of times
}

func newModel(p *plans.Problem) (*model, error) {
	switch {
	case p.Steps == nil:
		return nil, fmt.Errorf("%w: a demand", ErrUnsupported)
	case p.Circuits == plans.Interleaved:
		return nil, fmt.Errorf("%w: interleaved planes", ErrUnsupported)
	case p.ReconfigPerPort != 0:
		return nil, fmt.Errorf("%w: a cost per port", ErrUnsupported)
	}
	m := &model{k: p.Planes, lat: p.AlphaUS + p.HopUS, recfg: p.ReconfigUS}
	var index circuit.Index
	for i := range p.Steps {
		s := &p.Steps[i]
		flows := s.FlowList()
		if len(flows) == 0 || s.Bytes == 0 {
			continue
		}
		pattern, ok := matching(flows, p.Ranks)
		if !ok {
			return nil, fmt.Errorf("%w: step %d is no permutation", ErrUnsupported, i)
		}
		id, _ := index.Add(pattern)
		m.cfg = append(m.cfg, id+1)
		m.work = append(m.work, plans.WireUS(p, s.Bytes))
		m.horizon += m.recfg + m.lat + plans.WireUS(p, s.Bytes)
	}
	m.configs = index.Len()
	for _, c := range p.Initial {
		id, ok := index.Find(c)
		if !ok {
			id = -1
		}
		m.first = append(m.first, id+1)
	}
	return m, nil
}

// matching returns the permutation of flows, false where a rank has two of a kind.
func matching(flows [][2]int, n int) (circuit.Permutation, bool) {
	to, taken := circuit.AllDark(n), make([]bool, n)
	for _, f := range flows {
		if to[f[0]] != circuit.Dark || taken[f[1]] {
			return nil, false
		}
		to[f[0]], taken[f[1]] = f[1], true
	}
	return to, true
}

// writer keeps the first error.
type writer struct {
	w   *bufio.Writer
	err error
}

func (o *writer) put(format string, args ...any) {
	if o.err == nil {
		_, o.err = fmt.Fprintf(o.w, format, args...)
	}
}

func (m *model) write(o *writer) {
	o.put("\\ SWOT, section 3.2: %d steps, %d planes, %d configurations, T_lat %g us, T_recfg %g us\n",
		len(m.cfg), m.k, m.configs, m.lat, m.recfg)
	o.put("Minimize\n obj: cct\nSubject To\n")
	if len(m.cfg) == 0 {
		o.put(" none: cct >= 0\n")
	}
	for i := range m.cfg {
		m.step(o, i)
		for j := range m.k {
			m.timeline(o, i, j)
			m.configuration(o, i, j)
		}
	}
	m.bounds(o)
	o.put("End\n")
}

// step writes equation 1 and the objective. Sums are split over lines, which readers limit.
func (m *model) step(o *writer, i int) {
	o.put(" c1_%d:", i)
	for j := range m.k {
		if j%8 == 7 {
			o.put("\n ")
		}
		o.put(" + d_%d_%d", i, j)
	}
	o.put(" = %.17g\n", m.work[i])
	o.put(" cct_%d: cct - f_%d >= 0\n", i, i)
}

// timeline writes equations 2, 3 and 6 to 11 for a step and a plane.
func (m *model) timeline(o *writer, i, j int) {
	at := fmt.Sprintf("_%d_%d", i, j)
	// d u = d: a plane that is not used carries nothing.
	o.put(" c1u%[1]s: d%[1]s - %.17[2]g u%[1]s <= 0\n", at, m.work[i])
	o.put(" c2%[1]s: te%[1]s - ts%[1]s - d%[1]s - %.17[2]g u%[1]s = 0\n", at, m.lat)
	o.put(" c3%[1]s: re%[1]s - rs%[1]s - %.17[2]g r%[1]s = 0\n", at, m.recfg)
	if i == 0 {
		o.put(" c6%[1]s: tp%[1]s = 0\n", at)
	} else {
		was := fmt.Sprintf("_%d_%d", i-1, j)
		o.put(" c7a%[1]s: tp%[1]s - tp%[2]s >= 0\n", at, was)
		o.put(" c7b%[1]s: tp%[1]s - te%[2]s - %.17[3]g u%[2]s >= -%.17[3]g\n", at, was, m.horizon)
		o.put(" c7c%[1]s: tp%[1]s - re%[2]s - %.17[3]g r%[2]s >= -%.17[3]g\n", at, was, m.horizon)
	}
	o.put(" c8%[1]s: rs%[1]s - tp%[1]s >= 0\n", at)
	o.put(" c9%[1]s: ts%[1]s - re%[1]s >= 0\n", at)
	o.put(" c10%[1]s: f_%[2]d - te%[1]s - %.17[3]g u%[1]s >= -%.17[3]g\n", at, i, m.horizon)
	if i > 0 {
		o.put(" c11%s: ts%s - f_%d >= 0\n", at, at, i-1)
	}
}

// configuration writes equations 4 and 5, and what last_cfg means: l is the plane's
// configuration before the step, and that of the next step is cfg_i where it reconfigures.
func (m *model) configuration(o *writer, i, j int) {
	at, next := fmt.Sprintf("_%d_%d", i, j), fmt.Sprintf("_%d_%d", i+1, j)
	n := m.configs
	o.put(" c4%[1]s: r%[1]s - u%[1]s + s%[1]s >= 0\n", at)
	o.put(" c5a%[1]s: l%[1]s + %[2]d s%[1]s <= %[3]d\n", at, n, n+m.cfg[i])
	o.put(" c5b%[1]s: l%[1]s - %[2]d s%[1]s >= %[3]d\n", at, n, m.cfg[i]-n)
	if i+1 == len(m.cfg) {
		return
	}
	o.put(" l1%[1]s: l%[2]s + %[3]d r%[1]s <= %[4]d\n", at, next, n, n+m.cfg[i])
	o.put(" l2%[1]s: l%[2]s - %[3]d r%[1]s >= %[4]d\n", at, next, n, m.cfg[i]-n)
	o.put(" l3%[1]s: l%[2]s - l%[1]s - %[3]d r%[1]s <= 0\n", at, next, n)
	o.put(" l4%[1]s: l%[2]s - l%[1]s + %[3]d r%[1]s >= 0\n", at, next, n)
}

func (m *model) bounds(o *writer) {
	o.put("Bounds\n")
	for i := range m.cfg {
		for j := range m.k {
			switch {
			case i > 0:
				o.put(" 0 <= l_%d_%d <= %d\n", i, j, m.configs)
			case m.first == nil:
				o.put(" 1 <= l_0_%d <= %d\n", j, m.configs)
			default:
				o.put(" l_0_%d = %d\n", j, m.first[j])
			}
		}
	}
	if len(m.cfg) == 0 {
		return
	}
	o.put("Generals\n")
	m.names(o, "l")
	o.put("Binaries\n")
	m.names(o, "u", "r", "s")
}

func (m *model) names(o *writer, kinds ...string) {
	for i := range m.cfg {
		for j := range m.k {
			for _, kind := range kinds {
				o.put(" %s_%d_%d", kind, i, j)
			}
			o.put("\n")
		}
	}
}
