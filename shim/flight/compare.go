package flight

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is what the recorders of one communicator say together.
type Finding struct {
	Comm    string `json:"comm"`
	Ranks   int    `json:"ranks"`
	Missing []int  `json:"missing"` // ranks whose recorder is not there
	// Seq is the first collective that ranks differ in, 0 where they differ in none that all
	// remember. Behind have not made it, Inside have not completed it, and Calls are the different
	// calls that ranks made as it, in order of their first rank.
	Seq    uint64     `json:"seq"`
	Behind []int      `json:"behind"`
	Inside []int      `json:"inside"`
	Calls  []Callers  `json:"calls"`
	Errors []RankWord `json:"errors"` // what ranks say that the communicator has failed with
}

// Callers are the ranks that made one call.
type Callers struct {
	Detail string `json:"detail"`
	Ranks  []int  `json:"ranks"`
}

// RankWord is what a rank says.
type RankWord struct {
	Rank int    `json:"rank"`
	Text string `json:"text"`
}

// Differs reports whether the ranks' recorders differ.
func (f *Finding) Differs() bool { return f.Seq > 0 }

// Compare compares the recorders of each communicator, in order of their names. Of several of one
// rank the one written last counts.
func Compare(dumps []*Dump) []Finding {
	comms := map[string][]*Dump{}
	for _, d := range dumps {
		same := func(o *Dump) bool { return o.Rank == d.Rank }
		if i := slices.IndexFunc(comms[d.Comm], same); i < 0 {
			comms[d.Comm] = append(comms[d.Comm], d)
		} else if comms[d.Comm][i].UnixTime < d.UnixTime {
			comms[d.Comm][i] = d
		}
	}
	found := []Finding{}
	for _, ranks := range comms {
		slices.SortFunc(ranks, func(a, b *Dump) int { return cmp.Compare(a.Rank, b.Rank) })
		found = append(found, compare(ranks))
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Compare(a.Comm, b.Comm) })
	return found
}

// compare compares the recorders of one communicator, which ascend in rank.
func compare(ranks []*Dump) Finding {
	f := Finding{Comm: ranks[0].Comm, Ranks: ranks[0].Ranks, Missing: []int{}, Behind: []int{}, Inside: []int{},
		Calls: []Callers{}, Errors: []RankWord{}}
	for r := range f.Ranks {
		if !slices.ContainsFunc(ranks, func(d *Dump) bool { return d.Rank == r }) {
			f.Missing = append(f.Missing, r)
		}
	}
	made := make([]map[uint64]*Operation, len(ranks))
	from := uint64(1) // collectives before it may have been made and forgotten
	var seqs []uint64
	for i, d := range ranks {
		if d.Error != "" {
			f.Errors = append(f.Errors, RankWord{d.Rank, d.Error})
		}
		made[i] = map[uint64]*Operation{}
		first := uint64(0)
		for k := range d.Operations {
			if o := &d.Operations[k]; o.Seq > 0 {
				made[i][o.Seq] = o
				first = cmp.Or(first, o.Seq)
				seqs = append(seqs, o.Seq)
			}
		}
		if d.Forgotten > 0 {
			from = max(from, first)
		}
	}
	slices.Sort(seqs)
	for _, seq := range slices.Compact(seqs) {
		if seq >= from && f.Seq == 0 {
			f.look(seq, ranks, made)
		}
	}
	return f
}

// look compares one collective, and keeps what it finds where ranks differ.
func (f *Finding) look(seq uint64, ranks []*Dump, made []map[uint64]*Operation) {
	var behind, inside []int
	var calls []Callers
	for i, d := range ranks {
		o := made[i][seq]
		if o == nil {
			behind = append(behind, d.Rank)
			continue
		}
		if o.Outcome != Completed {
			inside = append(inside, d.Rank)
		}
		k := slices.IndexFunc(calls, func(c Callers) bool { return c.Detail == o.Detail })
		if k < 0 {
			k, calls = len(calls), append(calls, Callers{Detail: o.Detail})
		}
		calls[k].Ranks = append(calls[k].Ranks, d.Rank)
	}
	// An operation that all ranks have begun and none has completed is where all of them are: no difference.
	if len(calls) > 1 || len(behind) > 0 || len(inside) > 0 && len(inside) < len(ranks) {
		f.Seq, f.Calls = seq, calls
		f.Behind, f.Inside = append(f.Behind, behind...), append(f.Inside, inside...)
	}
}

// String says in words what f says.
func (f *Finding) String() string {
	s := fmt.Sprintf("communicator %s (%d ranks): ", f.Comm, f.Ranks)
	switch {
	case f.Seq == 0:
		s += "the recorders agree"
	case len(f.Calls) > 1:
		s += fmt.Sprintf("operation %d: ", f.Seq)
		for i, c := range f.Calls {
			if i > 0 {
				s += ", "
			}
			s += fmt.Sprintf("ranks %v called %s", c.Ranks, c.Detail)
		}
	default:
		s += fmt.Sprintf("operation %d, %s: ", f.Seq, f.Calls[0].Detail)
		if len(f.Behind) > 0 {
			s += fmt.Sprintf("ranks %v have not called it; ", f.Behind)
		}
		s += fmt.Sprintf("ranks %v have not completed it", f.Inside)
	}
	if len(f.Missing) > 0 {
		s += fmt.Sprintf("; no recorder of ranks %v", f.Missing)
	}
	return s
}
