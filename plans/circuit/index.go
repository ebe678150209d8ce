package circuit

// Index numbers distinct permutations in the order in which they are added. The zero value is ready. Not safe for
// concurrent use.
type Index struct {
	all      []Permutation
	byDigest map[uint64][]int32
}

// Add returns the number of p, and whether p is new; a new permutation is kept, not copied.
func (x *Index) Add(p Permutation) (id int, fresh bool) {
	d := p.Digest()
	if id, ok := x.find(d, p); ok {
		return id, false
	}
	if x.byDigest == nil {
		x.byDigest = make(map[uint64][]int32)
	}
	id = len(x.all)
	x.byDigest[d] = append(x.byDigest[d], int32(id))
	x.all = append(x.all, p)
	return id, true
}

// Find returns the number of p, or false if p was never added.
func (x *Index) Find(p Permutation) (id int, ok bool) { return x.find(p.Digest(), p) }

func (x *Index) find(d uint64, p Permutation) (int, bool) {
	for _, id := range x.byDigest[d] {
		if x.all[id].Equal(p) {
			return int(id), true
		}
	}
	return 0, false
}

// At returns permutation id, which must have been added.
func (x *Index) At(id int) Permutation { return x.all[id] }

// Len returns how many permutations there are.
func (x *Index) Len() int { return len(x.all) }
