package flight

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is the result of comparing the recorders of one communicator.
type Finding struct {
	Comm    string `json:"comm"`
	Ranks   int    `json:"ranks"`
	Missing []int  `json:"missing"` // ranks without a dump
	// Seq is the first collective in which ranks differ, 0 if they agree on all that all of them remember. Ranks in
	// Behind have not called it; ranks in Inside have not completed it. Calls are the different calls with that number,
	// in the order of their first ranks.
	Seq    uint64     `json:"seq"`
	Behind []int      `json:"behind"`
	Inside []int      `json:"inside"`
	Calls  []Callers  `json:"calls"`
	Errors []RankWord `json:"errors"` // the ranks' errors
}

// Callers are the ranks that made one call.
type Callers struct {
	Detail string `json:"detail"`
	Ranks  []int  `json:"ranks"`
}

// RankWord is the statement of one rank.
type RankWord struct {
	Rank int    `json:"rank"`
	Text string `json:"text"`
}

// Differs reports whether the ranks' recorders differ.
func (f *Finding) Differs() bool { return f.Seq > 0 }

// Compare compares the recorders of each communicator, in order of their names. Of several dumps of a rank it takes the
// latest.
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

// compare compares the recorders of one communicator, in ascending order of ranks.
func compare(ranks []*Dump) Finding {
	f := Finding{Comm: ranks[0].Comm, Ranks: ranks[0].Ranks, Missing: []int{}, Behind: []int{}, Inside: []int{},
		Calls: []Callers{}, Errors: []RankWord{}}
	for r := range f.Ranks {
		if !slices.ContainsFunc(ranks, func(d *Dump) bool { return d.Rank == r }) {
			f.Missing = append(f.Missing, r)
		}
	}
	made := make([]map[uint64]*Operation, len(ranks))
	from := uint64(1) // earlier collectives may have been forgotten
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

// look compares one collective, and records a difference.
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
	// If all ranks have begun an operation and none has completed it, the ranks do not differ.
	if len(calls) > 1 || len(behind) > 0 || len(inside) > 0 && len(inside) < len(ranks) {
		f.Seq, f.Calls = seq, calls
		f.Behind, f.Inside = append(f.Behind, behind...), append(f.Inside, inside...)
	}
}

// String describes the finding in one sentence.
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
