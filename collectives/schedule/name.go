package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lightpath/plans"
)

// Sentinels of algorithm names.
var (
	ErrAlgorithm = errors.New("schedule: no such algorithm for this collective")
	ErrParameter = errors.New("schedule: bad parameter of an algorithm")
	ErrRanks     = errors.New("schedule: not defined for this number of ranks")
	ErrOrder     = errors.New("schedule: bad order of an algorithm")
)

// An algorithm is named by
//
//	name[:parameters][@order][~seats]
//
// with parameters joined by "x" (swing:4x4, bruck:4), an order by "." (pairwise@2.1.3) and seats as [Seated] writes them.
// The name says all that decides what is sent and in what order values are combined, so
// it can stand for the algorithm in signatures and keys. "msccl:FILE" is not a name of this
// package's and never will be.

// maxNumber bounds the numbers in a name: no parameter makes sense beyond the ranks.
const maxNumber = plans.MaxRanks

// spelled is an algorithm's name taken apart; nil where a part is absent.
type spelled struct {
	base  string
	args  []int
	order []int
	seats []int
}

// spell takes a name apart; it fails with [ErrParameter] or [ErrOrder].
func spell(name string) (s spelled, err error) {
	rest, seats, seated := strings.Cut(name, "~")
	if seated {
		if s.seats, err = parseSeats(seats); err != nil {
			return s, fmt.Errorf("%w: %q: %w", ErrOrder, name, err)
		}
	}
	rest, order, ordered := strings.Cut(rest, "@")
	base, args, parametrised := strings.Cut(rest, ":")
	s.base = base
	if parametrised {
		if s.args, err = numbers(args, "x", 1); err != nil {
			return s, fmt.Errorf("%w: %q: %w", ErrParameter, name, err)
		}
	}
	if ordered {
		if s.order, err = numbers(order, ".", 0); err != nil {
			return s, fmt.Errorf("%w: %q: %w", ErrOrder, name, err)
		}
	}
	return s, nil
}

func numbers(text, sep string, least int) ([]int, error) {
	var list []int
	for item := range strings.SplitSeq(text, sep) {
		v, err := strconv.Atoi(item)
		if err != nil || v < least || v > maxNumber || strconv.Itoa(v) != item {
			return nil, fmt.Errorf("%q is not numbers of %d..%d joined by %q", text, least, maxNumber, sep)
		}
		list = append(list, v)
	}
	return list, nil
}

// String is the inverse of [spell].
func (s spelled) String() string {
	text := s.base
	if s.args != nil {
		text += ":" + joined(s.args, "x")
	}
	if s.order != nil {
		text += "@" + joined(s.order, ".")
	}
	if s.seats != nil {
		text += "~" + runs(s.seats)
	}
	return text
}

func joined(list []int, sep string) string {
	text := make([]string, len(list))
	for i, v := range list {
		text[i] = strconv.Itoa(v)
	}
	return strings.Join(text, sep)
}

// Algorithms returns the names of the algorithms for c, without parameters and orders, in a
// fixed order.
func Algorithms(c Collective) []string {
	if c >= NumCollectives {
		return nil
	}
	var names []string
	for i := range algorithms[c] {
		names = append(names, algorithms[c][i].name)
	}
	return names
}

// Check reports whether algorithm is well formed and names an algorithm for c, whatever the
// number of ranks. Errors: [ErrCollective], [ErrAlgorithm], [ErrParameter], [ErrOrder].
func Check(c Collective, algorithm string) error {
	_, _, err := find(c, algorithm)
	return err
}

// Defined reports whether [Build] takes the algorithm on n ranks, of which there are at most
// [plans.MaxRanks]; it builds nothing.
func Defined(c Collective, algorithm string, n int) bool {
	_, err := resolve(c, algorithm, n, nil)
	return err == nil
}

// Canonical returns the shortest name of what algorithm names on n ranks: without
// parameters and orders that are the default. It is [Schedule.Algorithm] of what [Build]
// builds. Errors: those of [Check], and [ErrRanks].
func Canonical(c Collective, algorithm string, n int) (string, error) {
	r, err := resolve(c, algorithm, n, nil)
	if err != nil {
		return "", err
	}
	return r.canonical().String(), nil
}

// find returns the algorithm that is named and the name taken apart.
func find(c Collective, algorithm string) (*entry, spelled, error) {
	if c >= NumCollectives {
		return nil, spelled{}, fmt.Errorf("%w: %v", ErrCollective, c)
	}
	base := algorithm
	if i := strings.IndexAny(algorithm, ":@~"); i >= 0 {
		base = algorithm[:i]
	}
	i := slices.IndexFunc(algorithms[c], func(e entry) bool { return e.name == base })
	if i < 0 {
		return nil, spelled{}, fmt.Errorf("%w: %v %q (has %v)", ErrAlgorithm, c, algorithm, Algorithms(c))
	}
	e := &algorithms[c][i]
	s, err := spell(algorithm)
	switch {
	case err != nil:
	case s.args != nil && e.param == nil:
		err = fmt.Errorf("%w: %v %s has none: %q", ErrParameter, c, base, algorithm)
	case s.args != nil && (len(s.args) > e.param.most || slices.Min(s.args) < e.param.least):
		err = fmt.Errorf("%w: %q: %s takes %s", ErrParameter, algorithm, base, e.param.what)
	case s.order != nil && e.free == nil:
		err = fmt.Errorf("%w: the order of %v %s is fixed: %q", ErrOrder, c, base, algorithm)
	}
	return e, s, err
}

// resolved is an algorithm on a number of ranks with nothing left open.
type resolved struct {
	*entry
	n            int
	given        bool  // a parameter was
	args         []int // nil: the algorithm has none, or was named without and has no default
	order        []int // the first half of an algorithm that has halves
	second       []int // the other, in the order of the steps
	defaultOrder []int
	seats        []int // nil: every rank has its own
}

// resolve finds an algorithm and settles its parameters and order; order, where it is
// not nil, takes the place of the name's.
func resolve(c Collective, algorithm string, n int, order []int) (*resolved, error) {
	e, s, err := find(c, algorithm)
	if err != nil {
		return nil, err
	}
	if order != nil {
		s.order = order
	}
	if s.order != nil && e.free == nil {
		return nil, fmt.Errorf("%w: the order of %v %s is fixed", ErrOrder, c, e.name)
	}
	refuse := func() (*resolved, error) {
		return nil, fmt.Errorf("%w: %v %s on %d ranks", ErrRanks, c, algorithm, n)
	}
	if n < 1 || n > plans.MaxRanks || e.pow2 && n&(n-1) != 0 {
		return refuse()
	}
	r := &resolved{entry: e, n: n, given: s.args != nil, args: s.args}
	if p := e.param; p != nil {
		if !r.given && p.usual != nil {
			r.args = []int{p.usual(n)}
		}
		if r.given && p.fits != nil && !p.fits(n, r.args) {
			return refuse()
		}
	}
	if s.seats != nil {
		if err := checkSeats(s.seats, n); err != nil {
			return nil, fmt.Errorf("%w: %v %s", err, c, algorithm)
		}
		r.seats = seated(s.seats)
	}
	if e.free != nil {
		err = r.settle(s.order)
	}
	return r, err
}

// canonical returns the name of r without what is the default.
func (r *resolved) canonical() spelled {
	s := spelled{base: r.name}
	if r.given && (r.param.usual == nil || r.args[0] != r.param.usual(r.n)) {
		s.args = r.args
	}
	s.order, s.seats = r.shortOrder(), r.seats
	return s
}
