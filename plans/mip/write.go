package mip

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// output keeps the first error.
type output struct {
	w   *bufio.Writer
	err error
}

func (o *output) put(format string, args ...any) {
	if o.err == nil {
		_, o.err = fmt.Fprintf(o.w, format, args...)
	}
}

func (o *output) flush() error {
	if o.err == nil {
		o.err = o.w.Flush()
	}
	if o.err != nil {
		return fmt.Errorf("%w: %w", ErrProgram, o.err)
	}
	return nil
}

// termsPerLine keeps lines below what readers of the LP format take.
const termsPerLine = 6

// sum writes terms; a sum of none is 0 times the first variable.
func (p *Program) sum(o *output, terms []Term) {
	if len(terms) == 0 {
		o.put(" 0 %s", p.vars[0].name)
	}
	for i, t := range terms {
		if i > 0 && i%termsPerLine == 0 {
			o.put("\n ")
		}
		o.put(" %+.17g %s", t.Coef, p.vars[t.Var].name)
	}
}

// WriteLP writes the program in the CPLEX LP format. Comment goes into its first line.
func (p *Program) WriteLP(w io.Writer, comment string) error {
	if len(p.vars) == 0 {
		return fmt.Errorf("%w: no variables", ErrProgram)
	}
	o := &output{w: bufio.NewWriter(w)}
	o.put("\\ %s\nMinimize\n obj:", comment)
	var cost []Term
	for i := range p.vars {
		if c := p.vars[i].cost; c != 0 {
			cost = append(cost, Term{c, Var(i)})
		}
	}
	p.sum(o, cost)
	o.put("\nSubject To\n")
	for i := range p.rows {
		r := &p.rows[i]
		o.put(" %s:", r.name)
		p.sum(o, r.terms)
		o.put(" %s %.17g\n", map[Sense]string{AtMost: "<=", AtLeast: ">=", Equal: "="}[r.sense], r.rhs)
	}
	o.put("Bounds\n")
	for i := range p.vars {
		switch v := &p.vars[i]; {
		case v.lo == v.hi:
			o.put(" %s = %.17g\n", v.name, v.lo)
		case math.IsInf(v.hi, 1):
			o.put(" %s >= %.17g\n", v.name, v.lo)
		default:
			o.put(" %.17g <= %s <= %.17g\n", v.lo, v.name, v.hi)
		}
	}
	first := true
	for i := range p.vars {
		if p.vars[i].integer {
			if first {
				o.put("Generals\n")
				first = false
			}
			o.put(" %s\n", p.vars[i].name)
		}
	}
	o.put("End\n")
	return o.flush()
}

// WriteMPS writes the program in the free MPS format under a name without blanks.
func (p *Program) WriteMPS(w io.Writer, name string) error {
	if len(p.vars) == 0 {
		return fmt.Errorf("%w: no variables", ErrProgram)
	}
	o := &output{w: bufio.NewWriter(w)}
	o.put("NAME %s\nROWS\n N obj\n", name)
	columns := make([][]Term, len(p.vars)) // a Term's Var is the row's number here
	for i := range p.rows {
		o.put(" %c %s\n", p.rows[i].sense, p.rows[i].name)
		for _, t := range p.rows[i].terms {
			columns[t.Var] = append(columns[t.Var], Term{t.Coef, Var(i)})
		}
	}
	o.put("COLUMNS\n")
	integer := false
	for i := range p.vars {
		v := &p.vars[i]
		if v.integer != integer {
			p.marker(o, i, v.integer)
			integer = v.integer
		}
		o.put(" %s obj %.17g\n", v.name, v.cost)
		for _, t := range columns[i] {
			o.put(" %s %s %.17g\n", v.name, p.rows[t.Var].name, t.Coef)
		}
	}
	if integer {
		p.marker(o, len(p.vars), false)
	}
	o.put("RHS\n")
	for i := range p.rows {
		if rhs := p.rows[i].rhs; rhs != 0 {
			o.put(" RHS %s %.17g\n", p.rows[i].name, rhs)
		}
	}
	o.put("BOUNDS\n")
	for i := range p.vars {
		v := &p.vars[i]
		o.put(" LO BND %s %.17g\n", v.name, v.lo)
		if math.IsInf(v.hi, 1) {
			o.put(" PL BND %s\n", v.name)
		} else {
			o.put(" UP BND %s %.17g\n", v.name, v.hi)
		}
	}
	o.put("ENDATA\n")
	return o.flush()
}

// marker opens or closes a run of integer columns.
func (p *Program) marker(o *output, at int, open bool) {
	what := "INTEND"
	if open {
		what = "INTORG"
	}
	o.put(" MARKER%d 'MARKER' '%s'\n", at, what)
}
