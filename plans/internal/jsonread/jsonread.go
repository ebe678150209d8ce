package jsonread

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Reader is a strict pull reader of one JSON text. encoding/json accepts duplicate
// keys and cannot say at which element of which list a value is wrong; both matter here.
// Memory is bounded by the input: lists grow as they are read, and depth is limited.
type Reader struct {
	data []byte
	pos  int
	path []pathElem
}

// pathElem is a field (index < 0) or an element of a list.
type pathElem struct {
	field string
	index int
}

const maxDepth = 64

// New reads data.
func New(data []byte) *Reader { return &Reader{data: data} }

// Errorf reports what is wrong with the value that is being read.
func (r *Reader) Errorf(format string, args ...any) error {
	return At(formatPath(r.path), format, args...)
}

// Syntaxf reports text that is not JSON, by line and column.
func (r *Reader) Syntaxf(format string, args ...any) error {
	line, column := 1, 1
	for _, c := range r.data[:r.pos] {
		if column++; c == '\n' {
			line, column = line+1, 1
		}
	}
	return r.Errorf("line %d column %d: %s", line, column, fmt.Sprintf(format, args...))
}

// wrong reports a value of another type, or a text that has ended.
func (r *Reader) wrong(want string) error {
	if r.Peek(); r.pos == len(r.data) {
		return r.Syntaxf("the text ends: %s", want)
	}
	return r.Errorf("%s", want)
}

// At makes an error about the value at path, which is "" for the whole text.
func At(path, format string, args ...any) error {
	if path == "" {
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))
}

func formatPath(path []pathElem) string {
	var b []byte
	for _, e := range path {
		switch {
		case e.index >= 0:
			b = fmt.Appendf(b, "[%d]", e.index)
		case len(b) > 0:
			b = fmt.Appendf(b, ".%s", e.field)
		default:
			b = append(b, e.field...)
		}
	}
	return string(b)
}

// Peek skips white space and returns the next byte, 0 at the end.
func (r *Reader) Peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

// End reports anything after the value.
func (r *Reader) End() error {
	if r.Peek(); r.pos < len(r.data) {
		return r.Syntaxf("unexpected text after the value")
	}
	return nil
}

func (r *Reader) enter(e pathElem) error {
	if len(r.path) == maxDepth {
		return r.Syntaxf("nested deeper than %d", maxDepth)
	}
	r.path = append(r.path, e)
	return nil
}

func (r *Reader) leave() { r.path = r.path[:len(r.path)-1] }

// Object reads an object and calls field at the value of each of its keys.
func (r *Reader) Object(field func(key string) error) error {
	if r.Peek() != '{' {
		return r.wrong("want an object")
	}
	r.pos++
	var seen keySet
	for more := r.Peek() != '}'; more; {
		if r.Peek() != '"' {
			return r.Syntaxf("want a field name")
		}
		key, err := r.Text()
		if err != nil {
			return err
		}
		if !seen.add(key) {
			return r.Errorf("field %q appears twice", key)
		}
		if r.Peek() != ':' {
			return r.Syntaxf("want ':' after field %q", key)
		}
		r.pos++
		if err := r.enter(pathElem{field: key, index: -1}); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		r.leave()
		if more, err = r.next('}'); err != nil {
			return err
		}
	}
	r.pos++
	return nil
}

// List reads a list of at most limit elements and calls elem at each of them.
func (r *Reader) List(limit int, elem func(i int) error) error {
	if r.Peek() != '[' {
		return r.wrong("want a list")
	}
	r.pos++
	i := 0
	for more := r.Peek() != ']'; more; i++ {
		if i == limit {
			return r.Errorf("more than %d elements", limit)
		}
		if err := r.enter(pathElem{index: i}); err != nil {
			return err
		}
		if err := elem(i); err != nil {
			return err
		}
		r.leave()
		var err error
		if more, err = r.next(']'); err != nil {
			return err
		}
	}
	r.pos++
	return nil
}

// next consumes a comma and reports true, or stays at the closing byte.
func (r *Reader) next(closing byte) (bool, error) {
	switch r.Peek() {
	case closing:
		return false, nil
	case ',':
		r.pos++
		if r.Peek() == closing {
			return false, r.Syntaxf("unexpected '%c' after ','", closing)
		}
		return true, nil
	}
	return false, r.Syntaxf("want ',' or '%c'", closing)
}

// keySet finds duplicates; objects of these formats have few fields.
type keySet struct {
	few  []string
	many map[string]bool
}

func (s *keySet) add(key string) bool {
	if s.many == nil && len(s.few) < 16 {
		if slices.Contains(s.few, key) {
			return false
		}
		s.few = append(s.few, key)
		return true
	}
	if s.many == nil {
		s.many = make(map[string]bool)
		for _, k := range s.few {
			s.many[k] = true
		}
	}
	if s.many[key] {
		return false
	}
	s.many[key] = true
	return true
}

// Text reads a string.
func (r *Reader) Text() (string, error) {
	if r.Peek() != '"' {
		return "", r.wrong("want a string")
	}
	begin, plain := r.pos, true
	for i := begin + 1; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '\\':
			plain = false
			i++
		case c >= utf8.RuneSelf || c < ' ':
			plain = false
		case c == '"':
			r.pos = i + 1
			if plain {
				return string(r.data[begin+1 : i]), nil
			}
			raw := r.data[begin : i+1]
			var s string
			if !utf8.Valid(raw) || json.Unmarshal(raw, &s) != nil {
				r.pos = begin
				return "", r.Syntaxf("malformed string")
			}
			return s, nil
		}
	}
	return "", r.Syntaxf("unterminated string")
}

// Number reads a finite number; -0 becomes 0.
func (r *Reader) Number() (float64, error) {
	c := r.Peek()
	if c != '-' && (c < '0' || c > '9') {
		return 0, r.wrong("want a number")
	}
	token := numberToken(r.data[r.pos:])
	if token == nil {
		return 0, r.Syntaxf("malformed number")
	}
	r.pos += len(token)
	v, err := strconv.ParseFloat(string(token), 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, r.Errorf("number %.40s is not finite", token)
	}
	return v + 0, nil
}

// Integer reads a number without a fraction, between low and high.
func (r *Reader) Integer(low, high int) (int, error) {
	v, err := r.Number()
	switch {
	case err != nil:
		return 0, err
	case v != math.Trunc(v):
		return 0, r.Errorf("%v is not an integer", v)
	case v < float64(low) || v > float64(high):
		return 0, r.Errorf("%v is outside %d..%d", v, low, high)
	}
	return int(v), nil
}

// numberToken returns the number that b begins with, in JSON's grammar, or nil.
func numberToken(b []byte) []byte {
	i := 0
	digits := func() bool {
		begin := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > begin
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return nil
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return nil
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return nil
		}
	}
	return b[:i]
}

// Literal consumes word (true, false or null) if it comes next.
func (r *Reader) Literal(word string) bool {
	r.Peek()
	if len(r.data)-r.pos < len(word) || string(r.data[r.pos:r.pos+len(word)]) != word {
		return false
	}
	r.pos += len(word)
	return true
}

// Boolean reads true or false.
func (r *Reader) Boolean() (bool, error) {
	switch {
	case r.Literal("true"):
		return true, nil
	case r.Literal("false"):
		return false, nil
	}
	return false, r.wrong("want true or false")
}

// Skip reads any value and drops it.
func (r *Reader) Skip() error {
	switch c := r.Peek(); {
	case c == '{':
		return r.Object(func(string) error { return r.Skip() })
	case c == '[':
		return r.List(math.MaxInt, func(int) error { return r.Skip() })
	case c == '"':
		_, err := r.Text()
		return err
	case r.Literal("null") || r.Literal("true") || r.Literal("false"):
		return nil
	}
	_, err := r.Number()
	return err
}
