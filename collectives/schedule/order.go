package schedule

import (
	"fmt"
	"iter"
	"slices"
)

// What an order means. The meaning of some algorithms leaves open in which order they take
// the offsets, bits or digits that their steps stand for:
//
//	pairwise, pairwise-xor               the offsets 1..n-1 (masks) of the exchanges
//	round-robin                          the rounds 0..
//	rabenseifner, recursive-doubling-xor the bits 0.. of the ranks that take part
//	recursive-doubling, bruck            the digits 0.. of the distance, of weight radix^digit
//
// An AllReduce of two halves takes an order for its reduce-scatter, and a second one behind
// it for its allgather; the allgather mirrors the reduce-scatter where there is only one.
// Every order gives the right result. It decides in which order values are combined, so the
// bits of floating-point results depend on it: it is part of the algorithm's name.

// StepOrder returns the order of an algorithm on n ranks in full: that of its name, else
// the default; for an AllReduce of two halves that of both, one after the other. nil: the
// algorithm has none. Errors: those of [Build].
func StepOrder(c Collective, algorithm string, n int) ([]int, error) {
	r, err := resolve(c, algorithm, n, nil)
	if err != nil || r.free == nil {
		return nil, err
	}
	return slices.Concat(r.order, r.second), nil
}

// Neighbours yields the names of the algorithms next to one on n ranks: those whose order
// differs by an exchange of two elements of a half, or of the same two elements of both.
// Nothing where nothing is free or the algorithm is not defined.
func Neighbours(c Collective, algorithm string, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		r, err := resolve(c, algorithm, n, nil)
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

// settle sets the order of r to the given one, or the default where that is nil.
func (r *resolved) settle(order []int) error {
	r.defaultOrder = r.free(r.n, r.args)
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
			return fmt.Errorf("%w: %v on %d ranks; %s takes the order of %v", ErrOrder, order, r.n, r.name, want)
		}
	}
	r.order = order[:size:size]
	if r.halves {
		r.second = order[size:]
		if halves == 1 {
			r.second = mirrored(r.order)
		}
	}
	return nil
}

// shortOrder returns what of the order a name has to say.
func (r *resolved) shortOrder() []int {
	switch {
	case r.halves && !slices.Equal(r.second, mirrored(r.order)):
		return slices.Concat(r.order, r.second)
	case slices.Equal(r.order, r.defaultOrder):
		return nil
	}
	return r.order
}

func mirrored(list []int) []int {
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
