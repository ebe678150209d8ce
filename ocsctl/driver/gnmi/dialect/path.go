package dialect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"lightpath/internal/brief"
)

// wild is the key or name that matches all.
const wild = "*"

// Join returns the elements of a path below a prefix. Origins must be the dialect's, or absent.
func (d *Dialect) Join(prefix, path *gpb.Path) ([]*gpb.PathElem, error) {
	for _, origin := range []string{prefix.GetOrigin(), path.GetOrigin()} {
		if origin != "" && origin != d.Origin && (d.Origin != "" || origin != "openconfig") {
			return nil, fmt.Errorf("%w: origin %q, want %q", ErrMessage, brief.Line(origin), d.Origin)
		}
	}
	elems := append(slices.Clone(prefix.GetElem()), path.GetElem()...)
	if len(elems) > maxDepth {
		return nil, fmt.Errorf("%w: path of %d elements", ErrMessage, len(elems))
	}
	for i, e := range elems {
		if local := local(e.GetName()); local != e.GetName() {
			elems[i] = &gpb.PathElem{Name: local, Key: e.GetKey()}
		}
	}
	return elems, nil
}

// local strips the module from a name.
func local(name string) string {
	if i := strings.IndexByte(name, ':'); i >= 0 {
		return name[i+1:]
	}
	return name
}

// ReadPath returns the path for reading a whole table.
func (d *Dialect) ReadPath(t *Table) *gpb.Path {
	return &gpb.Path{Origin: d.Origin, Elem: t.elems(t.Entry[:t.Read], nil)}
}

// EntryPath returns the path of a record with variables v.
func (d *Dialect) EntryPath(t *Table, v map[string]string) *gpb.Path {
	return &gpb.Path{Origin: d.Origin, Elem: t.elems(t.Entry, v)}
}

// elems fills in a pattern. Missing variables become wildcards.
func (t *Table) elems(pattern []Step, v map[string]string) []*gpb.PathElem {
	value := func(bind string) string {
		if s, ok := v[bind]; ok {
			return s
		}
		return wild
	}
	out := make([]*gpb.PathElem, len(pattern))
	for i, s := range pattern {
		e := &gpb.PathElem{Name: s.Name}
		if s.Bind != "" {
			e.Name = value(s.Bind)
		}
		if len(s.Keys) > 0 {
			e.Key = make(map[string]string, len(s.Keys))
		}
		for _, k := range s.Keys {
			if e.Key[k.Name] = k.Value; k.Value == "" {
				e.Key[k.Name] = value(k.Bind)
			}
		}
		out[i] = e
	}
	return out
}

// match binds the variables of the table's pattern to a path at or below an entry.
func (t *Table) match(elems []*gpb.PathElem) (v map[string]string, ok bool) {
	if len(t.Entry) == 0 || len(elems) < len(t.Entry) {
		return nil, false
	}
	v = make(map[string]string, 8)
	for i, s := range t.Entry {
		switch e := elems[i]; {
		case s.Bind != "":
			v[s.Bind] = e.GetName()
		case s.Name != e.GetName() || len(s.Keys) != len(e.GetKey()):
			return nil, false
		}
		for _, k := range s.Keys {
			value, has := elems[i].GetKey()[k.Name]
			if !has || k.Value != "" && value != k.Value {
				return nil, false
			}
			if k.Bind != "" {
				v[k.Bind] = value
			}
		}
	}
	return v, true
}

// Within reports whether path is at or below the place that pattern names. In the pattern, keys may be missing or wild,
// and names may be wild.
func Within(pattern, path []*gpb.PathElem) bool {
	if len(pattern) > len(path) {
		return false
	}
	for i, p := range pattern {
		if p.GetName() != wild && p.GetName() != path[i].GetName() {
			return false
		}
		for k, v := range p.GetKey() {
			if have, ok := path[i].GetKey()[k]; v != wild && (!ok || have != v) {
				return false
			}
		}
	}
	return true
}

// Roots groups paths that may share a request.
func (d *Dialect) Roots(paths []*gpb.Path) [][]*gpb.Path {
	if !d.OneRoot {
		return [][]*gpb.Path{paths}
	}
	var groups [][]*gpb.Path
	at := make(map[string]int)
	for _, p := range paths {
		root := ""
		if len(p.GetElem()) > 0 {
			root = p.GetElem()[0].GetName()
		}
		i, seen := at[root]
		if !seen {
			i = len(groups)
			at[root], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// Wild reports whether a path stands for several places.
func Wild(elems []*gpb.PathElem) bool {
	for _, e := range elems {
		if e.GetName() == wild || slices.Contains(slices.Collect(maps.Values(e.GetKey())), wild) {
			return true
		}
	}
	return false
}

// String returns a path in the usual notation, with keys in order of name.
func String(elems []*gpb.PathElem) string {
	var b strings.Builder
	for _, e := range elems {
		b.WriteByte('/')
		b.WriteString(e.GetName())
		for _, k := range slices.Sorted(maps.Keys(e.GetKey())) {
			fmt.Fprintf(&b, "[%s=%s]", k, e.GetKey()[k])
		}
	}
	return b.String()
}

// Known reports whether a path leads to, or into, a table of the dialect.
func (d *Dialect) Known(elems []*gpb.PathElem) bool {
	return slices.ContainsFunc(d.tables(), func(t *Table) bool {
		for i := range min(len(elems), len(t.Entry)) {
			if s := t.Entry[i]; s.Bind == "" && s.Name != elems[i].GetName() {
				return false
			}
		}
		return len(t.Entry) > 0
	})
}

// Names reports whether a path leads to, or into, one entry of a table by its name.
func (d *Dialect) Names(elems []*gpb.PathElem) bool {
	return slices.ContainsFunc(d.tables(), func(t *Table) bool {
		named := false
		for i := range min(len(elems), len(t.Entry)) {
			s, e := t.Entry[i], elems[i]
			if s.Bind == "" && s.Name != e.GetName() {
				return false
			}
			named = named || s.Bind != "" && e.GetName() != wild
			for _, k := range s.Keys {
				at, has := e.GetKey()[k.Name]
				named = named || k.Bind != "" && has && at != wild
			}
		}
		return named
	})
}

// Writes returns the entry to which a leaf belongs, if the leaf is in the table: a field, or a key that repeats a key
// of the path.
func (t *Table) Writes(l Leaf) (entry string, ok bool) {
	v, ok := t.match(l.Elems)
	if !ok {
		return "", false
	}
	at := l.Elems[:len(t.Entry)]
	path := fieldPath(l.Elems[len(t.Entry):])
	last := t.Entry[len(t.Entry)-1]
	ok = slices.ContainsFunc(t.Fields, func(f Field) bool { return f.Path == path }) ||
		slices.ContainsFunc(last.Keys, func(k Key) bool { return k.Name == path && v[k.Bind] == l.Value })
	return String(at), ok
}

// Measured reports whether a leaf of the table is a power.
func (t *Table) Measured(l Leaf) bool {
	if _, ok := t.match(l.Elems); !ok {
		return false
	}
	path := fieldPath(l.Elems[len(t.Entry):])
	return slices.ContainsFunc(t.Fields, func(f Field) bool {
		return f.Path == path && (f.Bind == "input" || f.Bind == "output")
	})
}

// IDOf returns the name of a configured circuit: its id or, in a dialect without ids, its path.
func (d *Dialect) IDOf(c Circuit) string {
	v, _ := d.Config.match(c.Path)
	if id, ok := v["id"]; ok {
		return id
	}
	return String(c.Path)
}
