package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Reader is a strict pull reader of one JSON text: it refuses fields that an object has twice and text that is not
// UTF-8. An error names the field or element that is being read and, if the text is not JSON, the line and column.
// Lists grow as they are read, and depth is limited, so the text bounds the memory.
type Reader struct {
	data []byte
	dec  *jsontext.Decoder
	path []pathElem
}

// pathElem is a field (index < 0) or an element of a list.
type pathElem struct {
	field string
	index int
}

const maxDepth = 64

// NewReader reads data.
func NewReader(data []byte) *Reader {
	return &Reader{data: data, dec: jsontext.NewDecoder(bytes.NewBuffer(data))}
}

// Errorf returns an error about the value that is being read.
func (r *Reader) Errorf(format string, args ...any) error {
	return At(formatPath(r.path), format, args...)
}

// At returns an error about the value at path, which is "" for the whole text.
func At(path, format string, args ...any) error {
	if path == "" {
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))
}

// Amount returns an error if the number at path is negative or not finite.
func Amount(path string, v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return At(path, "%v is not finite", v)
	case v < 0:
		return At(path, "%v is negative", v)
	}
	return nil
}

func formatPath(path []pathElem) string {
	var b []byte
	for _, e := range path {
		switch {
		case e.index >= 0:
			b = fmt.Appendf(b, "[%d]", e.index)
		case len(b) > 0:
			b = fmt.Appendf(b, ".%s", oneLine(e.field))
		default:
			b = append(b, oneLine(e.field)...)
		}
	}
	return string(b)
}

// oneLine returns the name of a field, quoted if it has line ends or other characters that would spoil an error.
func oneLine(field string) string {
	if quoted := strconv.Quote(field); quoted[1:len(quoted)-1] != field {
		return quoted
	}
	return field
}

// syntax rewrites an error of the decoder. want is what the caller expected, "" for a value of any type.
func (r *Reader) syntax(err error, want string) error {
	offset, text := r.dec.InputOffset(), err.Error()
	if bad, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return r.Errorf("field %q appears twice", bad.JSONPointer.LastToken())
		}
		offset, text = bad.ByteOffset, bad.Err.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		offset, text = int64(len(r.data)), "the text ends"
		if want != "" {
			text += ": " + want
		}
	}
	return r.syntaxAt(offset, text)
}

func (r *Reader) syntaxAt(offset int64, text string) error {
	before := r.data[:min(offset, int64(len(r.data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	return r.Errorf("line %d column %d: %s", line, len(before)-bytes.LastIndexByte(before, '\n'), text)
}

// wrong returns the error about a value of another type, or about text that is not JSON.
func (r *Reader) wrong(want string) error {
	if _, err := r.dec.ReadToken(); err != nil {
		return r.syntax(err, want)
	}
	return r.Errorf("%s", want)
}

// token reads the next token, which has to be of a kind.
func (r *Reader) token(kind jsontext.Kind, want string) (t jsontext.Token, err error) {
	if r.Peek() != kind {
		return t, r.wrong(want)
	}
	if t, err = r.dec.ReadToken(); err != nil {
		return t, r.syntax(err, want)
	}
	return t, nil
}

// Peek returns the first byte of the next token, 0 if there is none. All numbers begin with '0'.
func (r *Reader) Peek() jsontext.Kind { return r.dec.PeekKind() }

// End returns an error if there is text after the value.
func (r *Reader) End() error {
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return r.syntaxAt(r.dec.InputOffset(), "unexpected text after the value")
	}
	return nil
}

// element reads a field or an element of a list by read.
func (r *Reader) element(e pathElem, read func() error) error {
	if len(r.path) == maxDepth {
		return r.syntaxAt(r.dec.InputOffset(), fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	r.path = append(r.path, e)
	if err := read(); err != nil {
		return err
	}
	r.path = r.path[:len(r.path)-1]
	return nil
}

// Object reads an object and calls field at the value of each of its keys.
func (r *Reader) Object(field func(key string) error) error {
	if _, err := r.token('{', "want an object"); err != nil {
		return err
	}
	for r.Peek() != '}' {
		name, err := r.token('"', "want a field name")
		if err != nil {
			return err
		}
		key := name.String()
		if err := r.element(pathElem{key, -1}, func() error { return field(key) }); err != nil {
			return err
		}
	}
	_, err := r.token('}', "want '}'")
	return err
}

// List reads a list of at most limit elements and calls elem at each of them.
func (r *Reader) List(limit int, elem func(i int) error) error {
	if _, err := r.token('[', "want a list"); err != nil {
		return err
	}
	for i := 0; r.Peek() != ']'; i++ {
		if i == limit {
			return r.Errorf("more than %d elements", limit)
		}
		if err := r.element(pathElem{index: i}, func() error { return elem(i) }); err != nil {
			return err
		}
	}
	_, err := r.token(']', "want ']'")
	return err
}

// List reads a list of at most limit elements by elem.
func List[T any](r *Reader, limit int, elem func() (T, error)) ([]T, error) {
	all := []T{}
	err := r.List(limit, func(int) error {
		v, err := elem()
		all = append(all, v)
		return err
	})
	return all, err
}

// Pair reads a list of two elements by elem.
func Pair[T any](r *Reader, elem func() (T, error)) (pair [2]T, err error) {
	n := 0
	err = r.List(len(pair), func(i int) (err error) {
		n++
		pair[i], err = elem()
		return err
	})
	if err == nil && n != len(pair) {
		err = r.Errorf("has %d elements, want %d", n, len(pair))
	}
	return pair, err
}

// Between returns a function that reads a number as [Reader.Integer] does.
func (r *Reader) Between(low, high int) func() (int, error) {
	return func() (int, error) { return r.Integer(low, high) }
}

// Fields are those of an object by name: a pointer to the place for the value, or a function that reads it.
type Fields map[string]any

// Fields reads an object that may have the given fields and no others, and returns the names of those it has.
func (r *Reader) Fields(f Fields) (have map[string]bool, err error) {
	have = make(map[string]bool)
	return have, r.Object(func(key string) (err error) {
		have[key] = true
		switch to := f[key].(type) {
		case *string:
			*to, err = r.Text()
		case *float64:
			*to, err = r.Number()
		case *bool:
			*to, err = r.Boolean()
		case func() error:
			err = to()
		default:
			err = r.Errorf("unknown field")
		}
		return err
	})
}

// Into returns a function that stores the value of another function.
func Into[T any](to *T, read func() (T, error)) func() error {
	return func() (err error) {
		*to, err = read()
		return err
	}
}

// ListInto returns a function that stores what [List] returns.
func ListInto[T any](r *Reader, to *[]T, limit int, elem func() (T, error)) func() error {
	return Into(to, func() ([]T, error) { return List(r, limit, elem) })
}

// Need returns an error if the object that is being read does not have one of the fields.
func (r *Reader) Need(have map[string]bool, fields ...string) error {
	for _, name := range fields {
		if !have[name] {
			return r.Errorf("%s: missing", name)
		}
	}
	return nil
}

// Text reads a string.
func (r *Reader) Text() (string, error) {
	t, err := r.token('"', "want a string")
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// Number reads a finite number; -0 becomes 0.
func (r *Reader) Number() (float64, error) {
	if r.Peek() != '0' {
		return 0, r.wrong("want a number")
	}
	digits, err := r.dec.ReadValue()
	if err != nil {
		return 0, r.syntax(err, "want a number")
	}
	v, err := strconv.ParseFloat(string(digits), 64)
	if err != nil {
		return 0, r.Errorf("number %.40s is not finite", digits)
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

// Boolean reads true or false.
func (r *Reader) Boolean() (bool, error) {
	if k := r.Peek(); k != 't' && k != 'f' {
		return false, r.wrong("want true or false")
	}
	t, err := r.token(r.Peek(), "want true or false")
	return err == nil && t.Bool(), err
}

// Null reads null if it comes next, and reports whether it did.
func (r *Reader) Null() bool {
	if r.Peek() != 'n' {
		return false
	}
	_, err := r.dec.ReadToken()
	return err == nil
}

// Skip reads any value and drops it.
func (r *Reader) Skip() error {
	switch r.Peek() {
	case '{':
		return r.Object(func(string) error { return r.Skip() })
	case '[':
		return r.List(math.MaxInt, func(int) error { return r.Skip() })
	}
	if err := r.dec.SkipValue(); err != nil {
		return r.syntax(err, "want a value")
	}
	return nil
}
