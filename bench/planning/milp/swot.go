package milp

import (
	"errors"
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/mip"
)

// ErrUnsupported reports a problem that the paper's program cannot describe.
var ErrUnsupported = errors.New("milp: not a problem of SWOT's program")

// SWOT returns SWOT's program for p. Its optimum is the least CCT in us over all plans that
// transmit on direct circuits.
//
// Beyond the paper's text: products with a binary are linearised with big-M. Its constant is a time by which a plan
// that reconfigures before every step has ended. Volumes d are in us of work on one plane. The paper leaves last_cfg
// before the first step open; here p.Initial says whether it is free, a pattern's number or 0 (none). Steps of no bytes
// are left out. The program has no final state, because it is reached after the last transmission, and the objective
// ends there. Two steps have the same configuration if their patterns are equal. As in the paper, a pattern that is
// part of another one is a different pattern.
//
// Errors wrap [ErrUnsupported]. The program cannot express demands, steps that are no permutation, interleaved planes,
// and costs per port.
func SWOT(p *plans.Problem) (*mip.Program, error) {
	m, err := newModel(p)
	if err != nil {
		return nil, err
	}
	return m.write(), nil
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

// matching returns the permutation of flows. It returns false if a rank sends or receives two flows.
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

// vars are the variables of a step on a plane, in the paper's names. Times are in us.
type vars struct {
	d, ts, te mip.Var // work, and when it begins and ends
	rs, re    mip.Var // when the reconfiguration before it begins and ends
	tp        mip.Var // end of the plane's work for earlier steps
	u, r, s   mip.Var // 0 or 1: used, reconfigured, already on the step's configuration
	l         mip.Var // last_cfg, the configuration before the step
}

func (m *model) write() *mip.Program {
	p := &mip.Program{}
	cct := p.Add("cct", 0, math.Inf(1))
	p.Minimize(term(1, cct))
	end := make([]mip.Var, len(m.cfg))
	all := make([][]vars, len(m.cfg))
	for i := range m.cfg {
		end[i] = p.Add(fmt.Sprintf("f_%d", i), 0, math.Inf(1))
		all[i] = make([]vars, m.k)
		for j := range m.k {
			all[i][j] = m.variables(p, i, j)
		}
	}
	for i := range m.cfg {
		var work []mip.Term
		for j := range m.k {
			work = append(work, term(1, all[i][j].d))
			m.timeline(p, all, end, i, j)
			m.configuration(p, all, i, j)
		}
		p.Row(fmt.Sprintf("c1_%d", i), mip.Equal, m.work[i], work...)
		p.Row(fmt.Sprintf("cct_%d", i), mip.AtLeast, 0, term(1, cct), term(-1, end[i]))
	}
	return p
}

// variables adds the variables of a step on a plane.
func (m *model) variables(p *mip.Program, i, j int) vars {
	at := fmt.Sprintf("_%d_%d", i, j)
	time := func(name string) mip.Var { return p.Add(name+at, 0, math.Inf(1)) }
	binary := func(name string) mip.Var { return p.AddInteger(name+at, 0, 1) }
	v := vars{d: time("d"), ts: time("ts"), te: time("te"), rs: time("rs"), re: time("re"), tp: time("tp"),
		u: binary("u"), r: binary("r"), s: binary("s")}
	low, high := 0, m.configs
	switch {
	case i == 0 && m.first == nil:
		low = 1
	case i == 0:
		low, high = m.first[j], m.first[j]
	}
	v.l = p.AddInteger("l"+at, float64(low), float64(high))
	return v
}

func term(coef float64, v mip.Var) mip.Term { return mip.Term{Coef: coef, Var: v} }

// timeline adds equations 2, 3 and 6 to 11 for a step and a plane.
func (m *model) timeline(p *mip.Program, all [][]vars, end []mip.Var, i, j int) {
	v, big := all[i][j], m.horizon
	row := func(name string, sense mip.Sense, rhs float64, terms ...mip.Term) {
		p.Row(fmt.Sprintf("%s_%d_%d", name, i, j), sense, rhs, terms...)
	}
	// d u = d: an unused plane carries nothing.
	row("c1u", mip.AtMost, 0, term(1, v.d), term(-m.work[i], v.u))
	row("c2", mip.Equal, 0, term(1, v.te), term(-1, v.ts), term(-1, v.d), term(-m.lat, v.u))
	row("c3", mip.Equal, 0, term(1, v.re), term(-1, v.rs), term(-m.recfg, v.r))
	if i == 0 {
		row("c6", mip.Equal, 0, term(1, v.tp))
	} else {
		was := all[i-1][j]
		row("c7a", mip.AtLeast, 0, term(1, v.tp), term(-1, was.tp))
		row("c7b", mip.AtLeast, -big, term(1, v.tp), term(-1, was.te), term(-big, was.u))
		row("c7c", mip.AtLeast, -big, term(1, v.tp), term(-1, was.re), term(-big, was.r))
		row("c11", mip.AtLeast, 0, term(1, v.ts), term(-1, end[i-1]))
	}
	row("c8", mip.AtLeast, 0, term(1, v.rs), term(-1, v.tp))
	row("c9", mip.AtLeast, 0, term(1, v.ts), term(-1, v.re))
	row("c10", mip.AtLeast, -big, term(1, end[i]), term(-1, v.te), term(-big, v.u))
}

// configuration adds equations 4 and 5, and defines last_cfg: the configuration before the next step is cfg_i if the
// plane reconfigures.
func (m *model) configuration(p *mip.Program, all [][]vars, i, j int) {
	v, n, cfg := all[i][j], float64(m.configs), float64(m.cfg[i])
	row := func(name string, sense mip.Sense, rhs float64, terms ...mip.Term) {
		p.Row(fmt.Sprintf("%s_%d_%d", name, i, j), sense, rhs, terms...)
	}
	row("c4", mip.AtLeast, 0, term(1, v.r), term(-1, v.u), term(1, v.s))
	row("c5a", mip.AtMost, n+cfg, term(1, v.l), term(n, v.s))
	row("c5b", mip.AtLeast, cfg-n, term(1, v.l), term(-n, v.s))
	if i+1 == len(m.cfg) {
		return
	}
	next := all[i+1][j].l
	row("l1", mip.AtMost, n+cfg, term(1, next), term(n, v.r))
	row("l2", mip.AtLeast, cfg-n, term(1, next), term(-n, v.r))
	row("l3", mip.AtMost, 0, term(1, next), term(-1, v.l), term(-n, v.r))
	row("l4", mip.AtLeast, 0, term(1, next), term(-1, v.l), term(n, v.r))
}
