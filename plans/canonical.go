package plans

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"lightpath/plans/internal/jsonread"
)

// canonical returns the RFC 8785 form of a JSON text.
func canonical(data []byte) ([]byte, error) {
	r := &reader{jsonread.New(data)}
	b, err := r.appendCanonical(make([]byte, 0, len(data)))
	if err == nil {
		err = r.End()
	}
	return b, err
}

// appendCanonical appends the RFC 8785 (JCS) form of the JSON value that r is at: keys
// sorted by UTF-16 code units, no white space, numbers and strings in the one form that
// ECMAScript gives them. The known library takes a second for a plan of a megabyte; it is
// the oracle of the tests.
func (r *reader) appendCanonical(b []byte) ([]byte, error) {
	switch c := r.Peek(); {
	case c == '{':
		return r.appendCanonicalObject(b)
	case c == '[':
		b = append(b, '[')
		err := r.List(math.MaxInt, func(i int) (err error) {
			if i > 0 {
				b = append(b, ',')
			}
			b, err = r.appendCanonical(b)
			return err
		})
		return append(b, ']'), err
	case c == '"':
		s, err := r.Text()
		return appendCanonicalText(b, s), err
	case r.Literal("null"):
		return append(b, "null"...), nil
	case r.Literal("true"):
		return append(b, "true"...), nil
	case r.Literal("false"):
		return append(b, "false"...), nil
	}
	v, err := r.Number()
	return appendCanonicalNumber(b, v), err
}

func (r *reader) appendCanonicalObject(b []byte) ([]byte, error) {
	type member struct {
		key  string
		text []byte
	}
	var members []member
	err := r.Object(func(key string) error {
		text, err := r.appendCanonical(nil)
		members = append(members, member{key, text})
		return err
	})
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.key, b.key) })
	b = append(b, '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendCanonicalText(b, m.key), ':')
		b = append(b, m.text...)
	}
	return append(b, '}'), err
}

// compareUTF16 orders keys as JCS does. Up to U+D7FF that is the order of their bytes.
func compareUTF16(a, b string) int {
	if strings.Compare(a, b) == 0 {
		return 0
	}
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// appendCanonicalNumber writes v as ECMAScript's Number.prototype.toString does.
func appendCanonicalNumber(b []byte, v float64) []byte {
	begin := len(b)
	b = appendNumber(b, v)
	if e := bytes.LastIndexByte(b[begin:], 'e') + begin; e > begin && b[e+2] == '0' { // Go writes 1e-07
		b = append(b[:e+2], b[e+3:]...)
	}
	return b
}

func appendCanonicalText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case strings.IndexByte("\b\t\n\f\r", c) >= 0:
			b = append(b, '\\', "btnvfr"[c-'\b'])
		default:
			b = append(append(b, `\u00`...), strconv.FormatInt(int64(c)+0x100, 16)[1:]...)
		}
	}
	return append(b, '"')
}
