package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lightpath/plans"
)

// Errors of algorithm names.
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
// Parameters are joined by "x" (swing:4x4, bruck:4) and orders by "." (pairwise@2.1.3); [Seated] writes seats. The name
// determines all transfers and the order in which values are combined, so signatures and keys use it. This package
// never uses a name of the form "msccl:FILE".

// maxNumber is the largest number in a name; no parameter exceeds the number of ranks.
const maxNumber = plans.MaxRanks

// parsedName holds the parts of an algorithm's name; absent parts are nil.
type parsedName struct {
	base  string
	args  []int
	order []int
	seats []int
}

// parseName parses a name. Errors: [ErrParameter] and [ErrOrder].
func parseName(name string) (s parsedName, err error) {
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
			return nil, fmt.Errorf("%q, want numbers from %d to %d joined by %q", text, least, maxNumber, sep)
		}
		list = append(list, v)
	}
	return list, nil
}

// String returns the name, the inverse of [parseName].
func (s parsedName) String() string {
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

// Algorithms returns the names of the algorithms for c in a fixed order, without parameters and orders.
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

// Check returns an error unless algorithm is the name of an algorithm for c; it does not check the number of ranks.
// Errors: [ErrCollective], [ErrAlgorithm], [ErrParameter], [ErrOrder].
func Check(c Collective, algorithm string) error {
	_, _, err := find(c, algorithm)
	return err
}

// Defined reports whether [Build] accepts the algorithm on n ranks, without building it.
func Defined(c Collective, algorithm string, n int) bool {
	_, err := resolve(c, algorithm, n)
	return err == nil
}

// Canonical returns the shortest name of the algorithm on n ranks, without default parameters and orders. It is the
// Algorithm of the schedule that [Build] returns. Errors: those of [Check], and [ErrRanks].
func Canonical(c Collective, algorithm string, n int) (string, error) {
	r, err := resolve(c, algorithm, n)
	if err != nil {
		return "", err
	}
	return r.canonical().String(), nil
}

func find(c Collective, algorithm string) (*entry, parsedName, error) {
	if c >= NumCollectives {
		return nil, parsedName{}, fmt.Errorf("%w: %v", ErrCollective, c)
	}
	base := algorithm
	if i := strings.IndexAny(algorithm, ":@~"); i >= 0 {
		base = algorithm[:i]
	}
	i := slices.IndexFunc(algorithms[c], func(e entry) bool { return e.name == base })
	if i < 0 {
		return nil, parsedName{}, fmt.Errorf("%w: %v %q (has %s)", ErrAlgorithm, c, algorithm,
			strings.Join(Algorithms(c), ", "))
	}
	e := &algorithms[c][i]
	s, err := parseName(algorithm)
	switch {
	case err != nil:
	case s.args != nil && e.param == nil:
		err = fmt.Errorf("%w: %v %s has no parameter: %q", ErrParameter, c, base, algorithm)
	case s.args != nil && (len(s.args) > e.param.maxCount || slices.Min(s.args) < e.param.minValue):
		err = fmt.Errorf("%w: %q: %s takes %s", ErrParameter, algorithm, base, e.param.what)
	case s.order != nil && e.orderOf == nil:
		err = fmt.Errorf("%w: the order of %v %s is fixed: %q", ErrOrder, c, base, algorithm)
	case s.seats != nil && c == SendRecv: // they would change the result
		err = fmt.Errorf("%w: every rank of %v sends to the next: %q", ErrOrder, c, algorithm)
	}
	return e, s, err
}

// resolved is an algorithm on a number of ranks with all parameters and orders set.
type resolved struct {
	*entry
	n            int
	hasArgs      bool  // the name has a parameter
	args         []int // nil: the algorithm has no parameter, or no default
	order        []int // of the first half, if the algorithm has halves
	second       []int // of the second half, in the order of the steps
	defaultOrder []int
	seats        []int // nil: position k is rank k
}

// resolve finds an algorithm and sets its parameters and order.
func resolve(c Collective, algorithm string, n int) (*resolved, error) {
	e, s, err := find(c, algorithm)
	if err != nil {
		return nil, err
	}
	undefined := func() (*resolved, error) {
		return nil, fmt.Errorf("%w: %v %s on %d ranks", ErrRanks, c, algorithm, n)
	}
	if n < 1 || n > plans.MaxRanks || e.pow2 && n&(n-1) != 0 {
		return undefined()
	}
	r := &resolved{entry: e, n: n, hasArgs: s.args != nil, args: s.args}
	if p := e.param; p != nil {
		if !r.hasArgs && p.defaultValue != nil {
			r.args = []int{p.defaultValue(n)}
		}
		if r.hasArgs && p.valid != nil && !p.valid(n, r.args) {
			return undefined()
		}
	}
	if s.seats != nil {
		if err := checkSeats(s.seats, n); err != nil {
			return nil, fmt.Errorf("%w: %v %s", err, c, algorithm)
		}
		r.seats = seated(s.seats)
	}
	if e.orderOf != nil {
		err = r.setOrder(s.order)
	}
	return r, err
}

// canonical returns the name of r without defaults.
func (r *resolved) canonical() parsedName {
	s := parsedName{base: r.name}
	if r.hasArgs && (r.param.defaultValue == nil || r.args[0] != r.param.defaultValue(r.n)) {
		s.args = r.args
	}
	s.order, s.seats = r.shortOrder(), r.seats
	return s
}
