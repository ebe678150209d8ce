package mip

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// ErrProgram is wrapped by errors about programs that cannot be written, and assignments that do not fit.
var ErrProgram = errors.New("mip")

// Var is the number of a variable of a [Program], in the order of their addition.
type Var int

// Term is a coefficient times a variable.
type Term struct {
	Coef float64
	Var  Var
}

// Sense is how a row's sum compares with its right-hand side.
type Sense byte

// The senses of rows.
const (
	AtMost  Sense = 'L'
	AtLeast Sense = 'G'
	Equal   Sense = 'E'
)

type variable struct {
	name    string
	lo, hi  float64 // hi may be +Inf
	integer bool
	cost    float64
}

type row struct {
	name  string
	terms []Term
	sense Sense
	rhs   float64
}

// Program is: minimize the cost, subject to the rows, within the bounds of the variables. The zero value is empty. Not
// safe for concurrent use.
type Program struct {
	vars []variable
	rows []row
	byID map[string]Var
}

// Add adds a variable between lo and hi (hi may be +Inf). Names are letters, digits and
// underscores, unique, and begin with a letter other than e, which the LP format would take
// for an exponent; anything else panics, as names are the caller's own.
func (p *Program) Add(name string, lo, hi float64) Var {
	if !validName(name) {
		panic("mip: name " + strconv.Quote(name))
	}
	if _, twice := p.byID[name]; twice {
		panic("mip: two variables " + name)
	}
	if p.byID == nil {
		p.byID = make(map[string]Var)
	}
	v := Var(len(p.vars))
	p.byID[name] = v
	p.vars = append(p.vars, variable{name: name, lo: lo, hi: hi})
	return v
}

// AddInteger is [Program.Add] for a variable of integer value.
func (p *Program) AddInteger(name string, lo, hi float64) Var {
	v := p.Add(name, lo, hi)
	p.vars[v].integer = true
	return v
}

func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		switch {
		case i == 0 && (!letter || c == 'e' || c == 'E'):
			return false
		case !letter && c != '_' && (c < '0' || c > '9'):
			return false
		}
	}
	return name != ""
}

// Minimize sets the objective: the sum of terms.
func (p *Program) Minimize(terms ...Term) {
	for v := range p.vars {
		p.vars[v].cost = 0
	}
	for _, t := range terms {
		p.vars[t.Var].cost += t.Coef
	}
}

// Bound narrows a variable to lo..hi.
func (p *Program) Bound(v Var, lo, hi float64) { p.vars[v].lo, p.vars[v].hi = lo, hi }

// Row adds the row: the sum of terms, compared by sense with rhs. Terms of one variable are put together; those of
// coefficient 0 are left out. terms is not kept.
func (p *Program) Row(name string, sense Sense, rhs float64, terms ...Term) {
	at := make(map[Var]int, len(terms))
	var kept []Term
	for _, t := range terms {
		if i, ok := at[t.Var]; ok {
			kept[i].Coef += t.Coef
			continue
		}
		at[t.Var] = len(kept)
		kept = append(kept, t)
	}
	n := 0
	for _, t := range kept {
		if t.Coef != 0 {
			kept[n] = t
			n++
		}
	}
	p.rows = append(p.rows, row{name: name, terms: kept[:n], sense: sense, rhs: rhs})
}

// Size is the extent of a program.
type Size struct {
	Vars, Integers, Rows int
}

// Size counts.
func (p *Program) Size() Size {
	s := Size{Vars: len(p.vars), Rows: len(p.rows)}
	for i := range p.vars {
		if p.vars[i].integer {
			s.Integers++
		}
	}
	return s
}

// Name returns a variable's name.
func (p *Program) Name(v Var) string { return p.vars[v].name }

// Lookup returns the variable of a name.
func (p *Program) Lookup(name string) (Var, bool) {
	v, ok := p.byID[name]
	return v, ok
}

// Integer reports whether a variable must have an integer value.
func (p *Program) Integer(v Var) bool { return p.vars[v].integer }

// Cost returns the objective's value for an assignment, one value per variable.
func (p *Program) Cost(x []float64) float64 {
	sum := 0.0
	for i := range p.vars {
		sum += p.vars[i].cost * x[i]
	}
	return sum
}

// Check returns an error naming the row or the variable that x misses by the most, if that is
// more than tolerance, absolute.
func (p *Program) Check(x []float64, tolerance float64) error {
	if len(x) != len(p.vars) {
		return fmt.Errorf("%w: %d values for %d variables", ErrProgram, len(x), len(p.vars))
	}
	worst, what := tolerance, ""
	miss := func(by float64, format string, args ...any) {
		if by > worst || math.IsNaN(by) && !math.IsNaN(worst) {
			worst, what = by, fmt.Sprintf(format, args...)
		}
	}
	for i := range p.vars {
		v := &p.vars[i]
		miss(max(v.lo-x[i], x[i]-v.hi), "variable %s = %g, bounds %g..%g", v.name, x[i], v.lo, v.hi)
		if v.integer {
			miss(math.Abs(x[i]-math.Round(x[i])), "variable %s = %g is no integer", v.name, x[i])
		}
	}
	for i := range p.rows {
		r := &p.rows[i]
		sum := 0.0
		for _, t := range r.terms {
			sum += t.Coef * x[t.Var]
		}
		by := sum - r.rhs
		switch r.sense {
		case AtLeast:
			by = -by
		case Equal:
			by = math.Abs(by)
		case AtMost:
		}
		miss(by, "row %s: %g, want %c %g", r.name, sum, r.sense, r.rhs)
	}
	if what != "" {
		return fmt.Errorf("%w: %s, missed by %g", ErrProgram, what, worst)
	}
	return nil
}

// Clone returns a program whose bounds and objective can change without a change of p. Rows are shared: neither program
// may get new ones.
func (p *Program) Clone() *Program {
	return &Program{vars: slices.Clone(p.vars), rows: p.rows[:len(p.rows):len(p.rows)], byID: p.byID}
}
