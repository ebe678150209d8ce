package fabric

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Rewrite changes the costs, bandwidths and reconfiguration times in the text of a fabric file to
// those of f, and nothing else: comments and layout stay. [Decode] of the result
// equals f. If f differs in more, the error wraps [ErrFabric].
func Rewrite(data []byte, f *Fabric) ([]byte, error) {
	old, err := Decode(data)
	if err != nil {
		return nil, err
	}
	root, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFabric, err)
	}
	e := editor{lines: strings.SplitAfter(string(data), "\n")}
	err = e.costs(root, old.Costs, f.Costs)
	for j := range min(len(old.Planes), len(f.Planes)) {
		if was, is := old.Planes[j].Bandwidth, f.Planes[j].Bandwidth; was != is {
			err = errors.Join(err, e.replace(root, is.String(), "planes", j, "bandwidth"))
		}
	}
	for i := range min(len(old.OCS), len(f.OCS)) {
		if was, is := old.OCS[i].Reconfig, f.OCS[i].Reconfig; was != is {
			err = errors.Join(err, e.replace(root, formatDuration(is), "ocs", i, "reconfig"))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFabric, err)
	}
	out := e.text()
	back, err := Decode(out)
	if err == nil && !reflect.DeepEqual(back, f) {
		err = fmt.Errorf("%w: the file cannot be changed in place", ErrFabric)
	}
	return out, err
}

// editor collects edits of a text. It applies them at the end, so that positions stay valid.
type editor struct {
	lines []string // with their ends
	edits []edit
	tail  string // to append
}

// edit replaces some characters of a line. Positions count from 0, columns in characters.
type edit struct {
	line, column, length int
	text                 string
}

// costs edits the costs, and adds the missing ones.
func (e *editor) costs(root value, was, is Costs) error {
	var missing []string
	for _, c := range []struct {
		key     string
		was, is time.Duration
	}{{"alpha", was.Alpha, is.Alpha}, {"hop", was.Hop, is.Hop}, {"barrier", was.Barrier, is.Barrier}} {
		switch _, there := root.at("costs", c.key); {
		case c.was == c.is:
		case there:
			if err := e.replace(root, formatDuration(c.is), "costs", c.key); err != nil {
				return err
			}
		default:
			missing = append(missing, c.key+": "+formatDuration(c.is))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	costs, there := root.at("costs")
	if !there {
		e.tail = "costs: {" + strings.Join(missing, ", ") + "}\n"
		return nil
	}
	return e.insert(costs, missing)
}

// at returns the value at a path of field names and list positions.
func (v value) at(path ...any) (value, bool) {
	for _, step := range path {
		next, found := value{}, false
		// An error is about what was looked at on the way, which Decode has accepted.
		switch step := step.(type) {
		case string:
			_ = v.object(func(key string, at value) error {
				if key == step {
					next, found = at, true
				}
				return nil
			})
		case int:
			_ = v.list(func(i int, at value) error {
				if i == step {
					next, found = at, true
				}
				return nil
			})
		}
		if !found {
			return value{}, false
		}
		v = next
	}
	return v, true
}

// replace changes the text of the scalar at a path, and keeps its quotes.
func (e *editor) replace(root value, text string, path ...any) error {
	v, there := root.at(path...)
	if !there {
		return fmt.Errorf("%v: missing", path)
	}
	position := v.node.GetToken().Position
	line, column := position.Line-1, position.Column-1
	old := v.node.GetToken().Value
	if rest := e.rest(line, column); strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, "'") {
		column++
	}
	if !strings.HasPrefix(e.rest(line, column), old) {
		return v.errorf("%q cannot be changed in place", old)
	}
	e.edits = append(e.edits, edit{line, column, len([]rune(old)), text})
	return nil
}

// insert puts fields before the first field of a mapping.
func (e *editor) insert(v value, fields []string) error {
	n, ok := v.node.(*ast.MappingNode)
	if !ok {
		return v.errorf("fields cannot be added in place")
	}
	if len(n.Values) == 0 { // {}
		position := n.Start.Position
		e.edits = append(e.edits, edit{position.Line - 1, position.Column, 0, strings.Join(fields, ", ")})
		return nil
	}
	position := n.Values[0].Key.GetToken().Position
	line, column := position.Line-1, position.Column-1
	between := ", "
	if !n.IsFlowStyle {
		between = "\n" + strings.Repeat(" ", column)
	}
	e.edits = append(e.edits, edit{line, column, 0, strings.Join(fields, between) + between})
	return nil
}

// rest returns a line from a column on; "" if it ends before.
func (e *editor) rest(line, column int) string {
	if line < 0 || line >= len(e.lines) || column < 0 {
		return ""
	}
	runes := []rune(e.lines[line])
	return string(runes[min(column, len(runes)):])
}

// text applies the edits, the last of a line first, and returns the text.
func (e *editor) text() []byte {
	slices.SortFunc(e.edits, func(a, b edit) int { return b.column - a.column })
	for _, d := range e.edits {
		runes := []rune(e.lines[d.line])
		e.lines[d.line] = string(runes[:d.column]) + d.text + string(runes[d.column+d.length:])
	}
	all := strings.Join(e.lines, "")
	if e.tail != "" && !strings.HasSuffix(all, "\n") {
		all += "\n"
	}
	return []byte(all + e.tail)
}
