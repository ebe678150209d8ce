package dialect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// EntryLeaves returns the leaves of a record with variables v: one per field that v has.
func (t *Table) EntryLeaves(v map[string]string) []Leaf {
	entry := t.elems(t.Entry, v)
	leaves := make([]Leaf, 0, len(t.Fields))
	for _, f := range t.Fields {
		value, ok := v[f.Bind]
		if !ok {
			continue
		}
		at := slices.Clone(entry)
		for name := range strings.SplitSeq(f.Path, "/") {
			at = append(at, &gpb.PathElem{Name: name})
		}
		leaves = append(leaves, Leaf{Elems: at, Value: value, Number: f.Number})
	}
	return leaves
}

// EntryValue returns a record as one JSON_IETF value, to be written at its EntryPath.
func (d *Dialect) EntryValue(t *Table, v map[string]string) (*gpb.TypedValue, error) {
	return d.JSON(len(t.Entry), t.EntryLeaves(v))
}

// JSON returns one JSON_IETF value for leaves that share their first depth elements, or for a single leaf at that
// depth. Without leaves it returns an empty object.
func (d *Dialect) JSON(depth int, leaves []Leaf) (*gpb.TypedValue, error) {
	if len(leaves) == 0 {
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte("{}")}}, nil
	}
	root := &node{}
	numeric := d.numericKeys()
	for _, l := range leaves {
		if len(l.Elems) < depth {
			return nil, fmt.Errorf("%w: %s is above the value", ErrMessage, String(l.Elems))
		}
		root.at(l.Elems[depth:], numeric).leaf = value(l.Value, l.Number)
	}
	tree := root.tree()
	if top, ok := tree.(map[string]any); ok {
		tree = d.qualified(depth, leaves, top)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: text}}, nil
}

// qualified adds the module to the names of the top object's members, as JSON_IETF requires.
func (d *Dialect) qualified(depth int, leaves []Leaf, top map[string]any) map[string]any {
	module := make(map[string]string, len(top))
	for _, l := range leaves {
		if len(l.Elems) == depth {
			continue
		}
		name := l.Elems[depth].GetName()
		if _, done := module[name]; done {
			continue
		}
		for _, t := range d.tables() {
			if _, ok := t.match(l.Elems); ok && t.Module != "" {
				module[name] = t.Module + ":"
			}
		}
	}
	out := make(map[string]any, len(top))
	for name, v := range top {
		out[module[name]+name] = v
	}
	return out
}

func value(s string, number bool) any {
	if _, err := strconv.ParseInt(s, 10, 64); number && err == nil {
		return json.Number(s)
	}
	return s
}

// numericKeys returns the keys that are numbers in JSON.
func (d *Dialect) numericKeys() map[string]bool {
	all := make(map[string]bool)
	for _, t := range d.tables() {
		for _, s := range t.Entry {
			for _, k := range s.Keys {
				if k.Number {
					all[k.Name] = true
				}
			}
		}
	}
	return all
}

// node is a place of a tree under construction: a leaf, an object, or the entries of a list.
type node struct {
	leaf    any
	members map[string]*node
	entries map[string]*node
	keys    map[string]any // of an entry
}

func (n *node) at(elems []*gpb.PathElem, numeric map[string]bool) *node {
	for _, e := range elems {
		if n.members == nil {
			n.members = make(map[string]*node)
		}
		next := n.members[e.GetName()]
		if next == nil {
			next = &node{}
			n.members[e.GetName()] = next
		}
		if len(e.GetKey()) > 0 {
			id := String([]*gpb.PathElem{e})
			if next.entries == nil {
				next.entries = make(map[string]*node)
			}
			if next.entries[id] == nil {
				keys := make(map[string]any, len(e.GetKey()))
				for k, v := range e.GetKey() {
					keys[k] = value(v, numeric[k])
				}
				next.entries[id] = &node{keys: keys}
			}
			next = next.entries[id]
		}
		n = next
	}
	return n
}

func (n *node) tree() any {
	if n.entries != nil {
		list := make([]any, 0, len(n.entries))
		for _, id := range slices.Sorted(maps.Keys(n.entries)) {
			list = append(list, n.entries[id].tree())
		}
		return list
	}
	if n.members == nil && n.keys == nil {
		return n.leaf
	}
	object := make(map[string]any, len(n.members)+len(n.keys))
	maps.Copy(object, n.keys)
	for name, m := range n.members {
		object[name] = m.tree()
	}
	return object
}
