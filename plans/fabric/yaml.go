package fabric

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
)

// maxBytes bounds a file. The largest fabric (4096 ranks, 64 planes, a port name each) fits.
const maxBytes = 16 << 20

// value is a node of the YAML tree with the path that leads to it. Messages need line and path of every value. The
// library's own decoder has neither, and converts between types: it reads "version: 1.5" as 1.
type value struct {
	node ast.Node
	path string
	seen map[string]value // by path: every value that was read; may be nil
}

func (v value) see() {
	if v.seen != nil {
		v.seen[v.path] = v
	}
}

// errorf returns an error about v.
func (v value) errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if v.path != "" {
		err = fmt.Errorf("%s: %w", v.path, err)
	}
	if v.node == nil {
		return err
	}
	return fmt.Errorf("line %d: %w", v.node.GetToken().Position.Line, err)
}

// parse returns the root of the one document in data.
func parse(data []byte) (value, error) {
	if len(data) > maxBytes {
		return value{}, fmt.Errorf("larger than %d bytes", maxBytes)
	}
	tokens := lexer.Tokenize(string(data))
	if err := checkTokens(tokens); err != nil {
		return value{}, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			return value{}, fmt.Errorf("line %d: %s", y.GetToken().Position.Line, y.GetMessage())
		}
		return value{}, err
	}
	var root ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			return value{}, value{node: doc.Body}.errorf("a second document")
		}
		root = doc.Body
	}
	if root == nil {
		return value{}, errors.New("the file is empty")
	}
	return value{node: root}, nil
}

// object calls field for each key of a mapping, in the order of the file.
func (v value) object(field func(key string, at value) error) error {
	var pairs []*ast.MappingValueNode
	switch n := v.node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		return v.errorf("want fields")
	}
	seen := make(map[string]bool, len(pairs))
	for _, pair := range pairs {
		name := value{node: pair.Key, path: v.path}
		key, err := scalar(pair.Key)
		if err != nil {
			return name.errorf("want a plain field name")
		}
		if seen[key] {
			return name.errorf("field %q appears twice", key)
		}
		seen[key] = true
		at := value{node: pair.Value, path: v.join(key), seen: v.seen}
		at.see()
		if err := field(key, at); err != nil {
			if errors.Is(err, errUnknown) {
				return name.errorf("unknown field %q", key)
			}
			return err
		}
	}
	return nil
}

// fields are the fields of a mapping, by name: a pointer to a variable for the value, a function that reads it, or the
// fields of an inner mapping.
type fields map[string]any

// and adds the fields of g.
func (f fields) and(g fields) fields {
	maps.Copy(f, g)
	return f
}

// read reads a mapping, which may have the given fields and no others.
func (v value) read(f fields) error {
	return v.object(func(key string, v value) error {
		switch to := f[key].(type) {
		case *string:
			return v.text(to)
		case *bool:
			return v.boolean(to)
		case *time.Duration:
			return v.duration(to)
		case *Rate:
			return v.rate(to)
		case fields:
			return v.read(to)
		case func(value) error:
			return to(v)
		}
		return errUnknown
	})
}

// integer returns a function that reads a whole number between low and high.
func integer(to *int, low, high int) func(value) error {
	return func(v value) error { return v.integer(to, low, high) }
}

// listOf returns a function that reads a list with the reader of an element.
func listOf(elem func(value) error) func(value) error {
	return func(v value) error { return v.list(func(_ int, v value) error { return elem(v) }) }
}

// texts returns a function that reads a list of texts with the reader of one.
func texts(to *[]string, read func(value, *string) error) func(value) error {
	return listOf(func(v value) error {
		var text string
		err := read(v, &text)
		*to = append(*to, text)
		return err
	})
}

// errUnknown is the error of object's callback for an unknown key.
var errUnknown = errors.New("unknown field")

func (v value) join(key string) string {
	if v.path == "" {
		return key
	}
	return v.path + "." + key
}

// list calls elem for each element of a sequence.
func (v value) list(elem func(i int, at value) error) error {
	n, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return v.errorf("want a list")
	}
	for i, node := range n.Values {
		at := value{node: node, path: fmt.Sprintf("%s[%d]", v.path, i), seen: v.seen}
		at.see()
		if err := elem(i, at); err != nil {
			return err
		}
	}
	return nil
}

// scalar returns the text of a plain or quoted scalar.
func scalar(node ast.Node) (string, error) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", errors.New("not a scalar")
}

// text reads a string into to. It also accepts a number, as written: names such as port numbers are often not quoted.
func (v value) text(to *string) error {
	s, err := scalar(v.node)
	switch {
	case err != nil || v.node.Type() == ast.BoolType:
		return v.errorf("want a text")
	case s == "":
		return v.errorf("is empty")
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }):
		return v.errorf("%q contains characters that cannot be shown", s)
	}
	*to = s
	return nil
}

// integer reads a whole number between low and high into to.
func (v value) integer(to *int, low, high int) error {
	if _, ok := v.node.(*ast.IntegerNode); !ok {
		return v.errorf("want a whole number")
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(v.node.GetToken().Value, "_", ""), 0, 64)
	if err != nil || n < int64(low) || n > int64(high) {
		return v.errorf("%s is outside %d..%d", v.node.GetToken().Value, low, high)
	}
	*to = int(n)
	return nil
}

// number reads a number between low and high into to.
func (v value) number(to *float64, low, high float64) error {
	text, err := scalar(v.node)
	x, parsed := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || parsed != nil:
		return v.errorf("want a number")
	case !(x >= low && x <= high):
		return v.errorf("%s is outside %v..%v", text, low, high)
	}
	*to = x
	return nil
}

// boolean reads true or false into to.
func (v value) boolean(to *bool) error {
	n, ok := v.node.(*ast.BoolNode)
	if !ok {
		return v.errorf("want true or false")
	}
	*to = n.Value
	return nil
}

// duration reads a duration into to.
func (v value) duration(to *time.Duration) error {
	var s string
	if err := v.text(&s); err != nil {
		return err
	}
	d, err := parseDuration(s)
	if err != nil {
		return v.errorf("%w", err)
	}
	*to = d
	return nil
}

// rate reads a rate into to.
func (v value) rate(to *Rate) error {
	var s string
	if err := v.text(&s); err != nil {
		return err
	}
	r, err := ParseRate(s)
	if err != nil {
		return v.errorf("%w", err)
	}
	*to = r
	return nil
}

// key reads the text of a mapping key as a rank.
func (v value) key(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0, v.errorf("%q is no rank", text)
	}
	return n, nil
}
