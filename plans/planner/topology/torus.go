package topology

import (
	"fmt"
	"strings"

	"lightpath/plans/circuit"
)

// Torus returns the torus with one port per dimension, in the direction of rising
// coordinates; [Graph.Paired] adds the other direction. Rank r has coordinate
// r / (dims[0]*...*dims[i-1]) mod dims[i] in dimension i, as in a nested loop whose
// innermost index is dimension 0. A circuit of port i adds strides[i] to coordinate i, so
// strides other than 1 make the shifted tori of HARVEST, appendix A: nil means 1
// everywhere. Dimensions are at least 2 and no stride is a multiple of its dimension.
func Torus(dims, strides []int) (Graph, error) {
	n := 1
	for i, a := range dims {
		if a < 2 || n > 1<<20/a {
			return Graph{}, shapef("a torus of dimensions %v", dims)
		}
		if strides != nil && (len(strides) != len(dims) || strides[i]%a == 0) {
			return Graph{}, shapef("a torus of dimensions %v with strides %v", dims, strides)
		}
		n *= a
	}
	if len(dims) == 0 {
		return Graph{}, shapef("a torus without dimensions")
	}
	g := Graph{Name: torusName(dims, strides), Maps: make([]circuit.Permutation, len(dims))}
	block := 1
	for i, a := range dims {
		stride := 1
		if strides != nil {
			stride = strides[i]
		}
		p := make(circuit.Permutation, n)
		for r := range p {
			x := r / block % a
			p[r] = r + (((x+stride)%a+a)%a-x)*block
		}
		g.Maps[i] = p
		block *= a
	}
	return g, nil
}

func torusName(dims, strides []int) string {
	name := "torus " + join(dims, "x")
	for _, s := range strides {
		if s != 1 {
			return name + ", strides " + join(strides, ",")
		}
	}
	return name
}

func join(values []int, sep string) string {
	text := make([]string, len(values))
	for i, v := range values {
		text[i] = fmt.Sprint(v)
	}
	return strings.Join(text, sep)
}

// Factorizations returns every way to write n as a product of count factors of at least 2,
// in every order, lexicographically.
func Factorizations(n, count int) [][]int {
	if count == 1 {
		if n < 2 {
			return nil
		}
		return [][]int{{n}}
	}
	var all [][]int
	for a := 2; count > 1 && a <= n/2; a++ {
		if n%a != 0 {
			continue
		}
		for _, rest := range Factorizations(n/a, count-1) {
			all = append(all, append([]int{a}, rest...))
		}
	}
	return all
}
