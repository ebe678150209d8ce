package plans

import (
	"cmp"

	"lightpath/plans/circuit"
)

// A file has one of two forms. The expanded form states every map and every entry. The compact form states a shift or
// an exclusive or by a number, and any other map by its place in a list. It states repeating entries by their first
// repetition. Decoding gives the same values. So both forms have one digest, that of the expanded form.

// mapKey identifies a slice without its elements.
type mapKey struct {
	first *int
	n     int
}

func keyOf(p circuit.Permutation) mapKey {
	if len(p) == 0 {
		return mapKey{}
	}
	return mapKey{&p[0], len(p)}
}

// mapForm is how a map is stated.
type mapForm uint8

const (
	listForm  mapForm = iota // its elements
	shiftForm                // r -> (r + number) mod ranks
	xorForm                  // r -> r xor number, dark where that is not below ranks
	placeForm                // the map at that place of the plan's "maps"
)

// formNames are the names of the fields of a map that is no list.
var formNames = [...]string{"", "shift", "xor", "map"}

// mapName is a form and its number.
type mapName struct {
	form   mapForm
	number int
}

// nameOf returns the name of p. Its form is listForm if p is neither a shift nor an exclusive or.
func nameOf(p circuit.Permutation) mapName {
	if len(p) == 0 || p[0] < 0 {
		return mapName{}
	}
	if d, ok := p.Distance(); ok {
		return mapName{shiftForm, d}
	}
	for r, s := range p {
		x := r ^ p[0]
		if x >= len(p) {
			x = circuit.Dark
		}
		if s != x {
			return mapName{}
		}
	}
	return mapName{xorForm, p[0]}
}

// names finds the names of maps, once for each slice.
type names struct {
	ranks int // of maps with names; the maps of an infeasible plan may have several lengths
	known map[mapKey]mapName
	list  []circuit.Permutation // what placeForm numbers
	index circuit.Index         // maps of a general form
	place []int                 // of those, or -1
}

// namesOf returns the names of all maps of a plan.
func namesOf(p *Plan) *names {
	n := &names{}
	p.maps(n.collect)
	p.maps(n.settle)
	return n
}

func (n *names) of(p circuit.Permutation) mapName {
	n.ranks = cmp.Or(n.ranks, len(p))
	name, ok := n.known[keyOf(p)]
	if !ok {
		if n.known == nil {
			n.known = map[mapKey]mapName{}
		}
		if len(p) == n.ranks {
			name = nameOf(p)
		}
		n.known[keyOf(p)] = name
	}
	return name
}

// collect records a map of a plan. A map that is neither a shift nor an exclusive or gets a place when it occurs a
// second time.
func (n *names) collect(p circuit.Permutation) {
	if name := n.of(p); name.form != listForm {
		return
	}
	id, fresh := n.index.Add(p)
	if fresh {
		n.place = append(n.place, -1)
		return
	}
	if n.place[id] < 0 {
		n.place[id] = len(n.list)
		n.list = append(n.list, p)
	}
	n.known[keyOf(p)] = mapName{placeForm, n.place[id]}
}

// settle names a slice that an equal one followed.
func (n *names) settle(p circuit.Permutation) {
	if name := n.of(p); name.form == listForm {
		if id, ok := n.index.Find(p); ok && n.place[id] >= 0 {
			n.known[keyOf(p)] = mapName{placeForm, n.place[id]}
		}
	}
}

// maps calls f with every map of a plan.
func (p *Plan) maps(f func(circuit.Permutation)) {
	for _, c := range p.Initial {
		f(c)
	}
	for _, entries := range p.Planes {
		for i := range entries {
			if e := &entries[i]; e.Kind != Transmit {
				f(e.To)
			}
		}
	}
}

// named returns the map of a name on ranks ports, the same slice each time.
func (r *reader) named(name mapName) (circuit.Permutation, error) {
	if p, ok := r.maps[name]; ok {
		return p, nil
	}
	var p circuit.Permutation
	switch {
	case name.form == placeForm:
		return nil, r.Errorf("map: there is no map %d in maps", name.number)
	case r.ranks == 0:
		return nil, r.Errorf("%s: ranks must be stated before", formNames[name.form])
	case name.number < 0 || name.number >= r.ranks:
		return nil, r.Errorf("%s: %d is outside 0..%d", formNames[name.form], name.number, r.ranks-1)
	case name.form == shiftForm:
		p = circuit.Shift(r.ranks, name.number)
	default:
		p = circuit.Xor(r.ranks, name.number)
	}
	if r.maps == nil {
		r.maps = map[mapName]circuit.Permutation{}
	}
	r.maps[name] = p
	return p, nil
}

// namedMap is permutation, and returns the map's name if it has one.
func (r *reader) namedMap() (p circuit.Permutation, name mapName, err error) {
	if r.Peek() != '{' {
		p, err = r.permutation()
		return p, name, err
	}
	if name, err = r.name(); err == nil {
		p, err = r.named(name)
	}
	return p, name, err
}

// places reads the maps that placeForm numbers.
func (r *reader) places() error {
	r.maps = map[mapName]circuit.Permutation{}
	return r.List(maxExpanded, func(i int) error {
		p, err := r.permutation()
		r.maps[mapName{placeForm, i}] = p
		return err
	})
}

// name reads the object that stands for a map.
func (r *reader) name() (name mapName, err error) {
	err = r.Object(func(key string) error {
		for form := shiftForm; form <= placeForm; form++ {
			if key == formNames[form] && name.form == listForm {
				name.form = form
				name.number, err = r.Integer(0, maxExpanded)
				return err
			}
		}
		return r.Errorf("a map is a list or one of shift, xor and map")
	})
	if err == nil && name.form == listForm {
		err = r.Errorf("a map is a list or one of shift, xor and map")
	}
	return name, err
}

// Repeat says that entries of a plane repeat: Planes[j][From:From+Period*Count] is Count times Period entries. Each
// repetition is StepBy steps and ByUS us after the one before. The numbers of its maps, where these are shifts,
// exclusive ors or numbered, are larger by ToBy.
type Repeat struct {
	From, Period, Count int
	StepBy, ToBy        int
	ByUS                float64
}

const (
	maxExpanded = 1 << 21 // entries that a compact plan stands for
	maxPeriod   = 64      // entries of a repetition
)

// shifted returns the entry that is e in repetition i, without its map.
func (rep *Repeat) shifted(e *Entry, i int) Entry {
	out := *e
	if out.Kind == Transmit {
		out.Step += i * rep.StepBy
	}
	out.StartUS += float64(i) * rep.ByUS
	out.EndUS += float64(i) * rep.ByUS
	return out
}

// moved returns the name of a map in repetition i, if its number grows by the given amount per repetition.
func (name mapName) moved(i, by, ranks int) mapName {
	if name.form == listForm {
		return name
	}
	name.number += i * by
	if name.form == shiftForm && ranks > 0 {
		name.number = ((name.number % ranks) + ranks) % ranks
	}
	return name
}
