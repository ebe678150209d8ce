package schedule

import (
	"fmt"
	"iter"
	"slices"
)

// The steps of some algorithms stand for offsets, bits or digits, and may come in any order. The order is a permutation
// of these:
//
//	pairwise, pairwise-xor               the offsets 1..n-1 (masks) of the exchanges
//	round-robin                          the rounds 0..
//	rabenseifner, recursive-doubling-xor the bits 0.. of the ranks that take part
//	recursive-doubling, bruck            the digits 0.. of the distance, of weight radix^digit
//
// An AllReduce with two halves has an order for its reduce-scatter, followed by an optional second order for its
// allgather. Without a second order, the allgather takes the reverse order. Every order gives a correct result. Values
// are combined in the order of the steps, so floating-point results depend on it. So the order is part of the
// algorithm's name.

// StepOrder returns the order of an algorithm on n ranks, from its name or the default. For an AllReduce with two
// halves it returns both orders, concatenated. It returns nil if the order of the algorithm is fixed. Errors: those of
// [Build].
func StepOrder(c Collective, algorithm string, n int) ([]int, error) {
	r, err := resolve(c, algorithm, n)
	if err != nil || r.orderOf == nil {
		return nil, err
	}
	return slices.Concat(r.order, r.second), nil
}

// Neighbours yields the names of algorithms with another order. The order differs from the given one by an exchange of
// two elements in one half, or of the same two elements in both halves. It yields no name if the order is fixed or the
// algorithm is not defined on n ranks.
func Neighbours(c Collective, algorithm string, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		r, err := resolve(c, algorithm, n)
		if err != nil {
			return
		}
		first, second := r.order, r.second
		try := func(a, b []int) bool {
			r.order, r.second = a, b
			return yield(r.canonical().String())
		}
		for i := range first {
			for k := range i {
				ok := try(swapped(first, i, k), second)
				if second == nil {
					if !ok {
						return
					}
					continue
				}
				both := exchanged(second, first[i], first[k])
				if !ok || !try(first, swapped(second, i, k)) || !try(swapped(first, i, k), both) {
					return
				}
			}
		}
	}
}

// swapped returns list with the elements at i and k exchanged.
func swapped(list []int, i, k int) []int {
	list = slices.Clone(list)
	list[i], list[k] = list[k], list[i]
	return list
}

// exchanged returns list with the values v and w exchanged.
func exchanged(list []int, v, w int) []int {
	return swapped(list, slices.Index(list, v), slices.Index(list, w))
}

// setOrder sets the order of r; nil means the default.
func (r *resolved) setOrder(order []int) error {
	r.defaultOrder = r.orderOf(r.n, r.args)
	size := len(r.defaultOrder)
	if order == nil {
		order = r.defaultOrder
	}
	halves := 1
	if r.halves && len(order) == 2*size {
		halves = 2
	}
	want := slices.Sorted(slices.Values(r.defaultOrder))
	for h := range halves {
		if len(order) != halves*size || !slices.Equal(slices.Sorted(slices.Values(order[h*size:(h+1)*size])), want) {
			return fmt.Errorf("%w: %v on %d ranks, want a permutation of %v for %s", ErrOrder, order, r.n, want, r.name)
		}
	}
	r.order = order[:size:size]
	if r.halves {
		r.second = order[size:]
		if halves == 1 {
			r.second = reversed(r.order)
		}
	}
	return nil
}

// shortOrder returns the order for the canonical name, nil if it is the default.
func (r *resolved) shortOrder() []int {
	switch {
	case r.halves && !slices.Equal(r.second, reversed(r.order)):
		return slices.Concat(r.order, r.second)
	case slices.Equal(r.order, r.defaultOrder):
		return nil
	}
	return r.order
}

func reversed(list []int) []int {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// upTo returns lo, lo+1, ..., hi-1.
func upTo(lo, hi int) []int {
	list := make([]int, 0, max(0, hi-lo))
	for i := lo; i < hi; i++ {
		list = append(list, i)
	}
	return list
}
