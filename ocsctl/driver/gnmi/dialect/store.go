package dialect

import (
	"maps"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// tables returns the tables of a dialect, Config first.
func (d *Dialect) tables() []*Table { return []*Table{&d.Config, &d.Status, &d.Ports, &d.System} }

// Record is one entry of a table.
type Record struct {
	Elems  []*gpb.PathElem
	Values map[string]string // variables
	fields map[string]string // leaves by their path below the entry
}

// Store holds the records of a switch, by table. It is for one goroutine.
type Store struct {
	d       *Dialect
	records map[*Table]map[string]*Record
}

// NewStore returns an empty store.
func NewStore(d *Dialect) *Store {
	s := &Store{d: d, records: make(map[*Table]map[string]*Record)}
	for _, t := range d.tables() {
		s.records[t] = make(map[string]*Record)
	}
	return s
}

// Notify applies a notification: deletions, then updates.
func (s *Store) Notify(n *gpb.Notification) error {
	for _, p := range n.GetDelete() {
		elems, err := s.d.Join(n.GetPrefix(), p)
		if err != nil {
			return err
		}
		s.Delete(elems)
	}
	for _, u := range n.GetUpdate() {
		leaves, err := s.d.Leaves(n.GetPrefix(), u)
		if err != nil {
			return err
		}
		s.Update(leaves)
	}
	return nil
}

// Update adds leaves. It ignores leaves of no table.
func (s *Store) Update(leaves []Leaf) {
	for _, l := range leaves {
		for _, t := range s.d.tables() {
			if v, ok := t.match(l.Elems); ok {
				s.set(t, v, l)
			}
		}
	}
}

func (s *Store) set(t *Table, v map[string]string, l Leaf) {
	path := fieldPath(l.Elems[len(t.Entry):])
	i := slices.IndexFunc(t.Fields, func(f Field) bool { return f.Path == path })
	if i < 0 {
		return
	}
	entry := l.Elems[:len(t.Entry)]
	id := String(entry)
	r := s.records[t][id]
	if r == nil {
		r = &Record{Elems: entry, Values: v, fields: make(map[string]string)}
		s.records[t][id] = r
	}
	r.fields[path], r.Values[t.Fields[i].Bind] = l.Value, l.Value
	maps.Copy(r.Values, v) // keys in the path take precedence
}

// Delete removes records and fields at or below a path, which may be wild.
func (s *Store) Delete(path []*gpb.PathElem) {
	wild := Wild(path)
	for t, records := range s.records {
		if _, ok := t.match(path); ok && !wild { // one entry, or a part of it: no search is needed
			id := String(path[:len(t.Entry)])
			if r := records[id]; r != nil {
				s.drop(t, id, r, path)
			}
			continue
		}
		for id, r := range records {
			s.drop(t, id, r, path)
		}
	}
}

// drop removes the fields of a record at or below a path.
func (s *Store) drop(t *Table, id string, r *Record, path []*gpb.PathElem) {
	switch {
	case Within(path, r.Elems):
		delete(s.records[t], id)
	case len(path) > len(r.Elems) && Within(path[:len(r.Elems)], r.Elems):
		if r.remove(t, fieldPath(path[len(r.Elems):])); len(r.fields) == 0 {
			delete(s.records[t], id)
		}
	}
}

// remove drops the fields at or below a path below the entry.
func (r *Record) remove(t *Table, path string) {
	for _, f := range t.Fields {
		if f.Path == path || strings.HasPrefix(f.Path, path+"/") {
			delete(r.fields, f.Path)
			delete(r.Values, f.Bind)
		}
	}
	keys, _ := t.match(r.Elems)
	maps.Copy(r.Values, keys)
}

// Records returns the records of a table, in order of path.
func (s *Store) Records(t *Table) []*Record {
	all := make([]*Record, 0, len(s.records[t]))
	for _, id := range slices.Sorted(maps.Keys(s.records[t])) {
		all = append(all, s.records[t][id])
	}
	return all
}

// fieldPath joins the names of elements below an entry.
func fieldPath(elems []*gpb.PathElem) string {
	all := make([]string, len(elems))
	for i, e := range elems {
		all[i] = e.GetName()
	}
	return strings.Join(all, "/")
}
