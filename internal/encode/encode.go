package encode

import (
	"encoding/json"
	"math"
	"strconv"
	"sync"
)

// List appends a list of n elements, with lead before each.
func List(b []byte, lead string, n int, elem func(b []byte, i int) []byte) []byte {
	b = append(b, '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = elem(append(b, lead...), i)
	}
	return append(b, ']')
}

// small returns the texts of small numbers. Numbers of ranks make up most of a plan file.
var small = sync.OnceValue(func() []string {
	all := make([]string, 1<<12)
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	return all
})

// Ints appends a list of integers.
func Ints(b []byte, v []int) []byte {
	texts := small()
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		if x >= 0 && x < len(texts) {
			b = append(b, texts[x]...)
		} else {
			b = strconv.AppendInt(b, int64(x), 10)
		}
	}
	return append(b, ']')
}

// Number appends the shortest text that reads back as the bits of v, which is finite. It has an exponent where
// ECMAScript writes one. -0 becomes 0.
func Number(b []byte, v float64) []byte {
	format := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, v+0, format, -1, 64)
}

// Text appends s as a string. Bytes that are not UTF-8 become U+FFFD.
func Text(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can be written
	}
	return append(b, text...)
}
