// Package heap is a binary heap of values that know their order. It allocates only to grow.
//
// Layer: a leaf that every layer may use. container/heap does the same through interfaces, with an
// allocation for each value.
package heap

// ordered is a value that can be compared with others of its type.
type ordered[T any] interface {
	Before(T) bool // a strict order
}

// Heap holds its values so that none is before the one at index 0. The zero value is empty. The order of
// values that are equal depends on the calls only.
type Heap[T ordered[T]] []T

// Push adds a value.
func (h *Heap[T]) Push(x T) {
	*h = append(*h, x)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if !a[i].Before(a[up]) {
			break
		}
		a[up], a[i] = a[i], a[up]
		i = up
	}
}

// Pop removes and returns the first value. The heap must not be empty.
func (h *Heap[T]) Pop() T {
	a := *h
	top := a[0]
	last := len(a) - 1
	a[0] = a[last]
	a = a[:last]
	*h = a
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if a[c].Before(a[least]) {
				least = c
			}
		}
		if least == i {
			return top
		}
		a[least], a[i] = a[i], a[least]
		i = least
	}
}
