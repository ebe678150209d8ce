package learn

import (
	"cmp"
	"maps"
	"slices"
	"sort"
)

// apart finds the iteration of the communicator, or of the rank, whose own calls repeat after the longest time: others
// may make the same call several times in an iteration. Each communicator makes the same number of calls in each of
// these iterations. nil if that is not so.
func apart(communicators int, run []Record) *Found {
	lists := make([][]Record, communicators)
	for _, r := range run {
		lists[r.Communicator] = append(lists[r.Communicator], r)
	}
	var lead [][]Record
	longest := 0.0
	for _, list := range slices.Concat(lists, received(run)) {
		f := whole(list)
		if f == nil {
			continue
		}
		t := f.Rounds[1][0].StartUS - f.Rounds[0][0].StartUS
		if lead == nil || t > longest && f.Covers() >= len(list)/2 {
			lead, longest = f.Rounds, t
		}
	}
	if lead == nil {
		return nil
	}
	var parts [][][]Record
	n := len(lead)
	for _, list := range lists {
		if part := split(list, lead); part != nil {
			parts = append(parts, part)
			n = min(n, len(part))
		}
	}
	if n < 2 || parts == nil {
		return nil
	}
	rounds, _ := roundsOf(interleave(parts, n))
	f := &Found{Rounds: rounds}
	f.Left = len(run) - f.Covers()
	return f
}

// received returns for each rank the calls that bring data there, in the order and at the times of the rank. A program
// waits for these in its own order, while sends go on beside them.
func received(run []Record) [][]Record {
	lists := map[int][]Record{}
	for _, r := range run {
		for _, p := range r.On {
			if p.Receives {
				r.StartUS, r.EndUS = p.StartUS, p.EndUS
				lists[p.Rank] = append(lists[p.Rank], r)
			}
		}
	}
	var all [][]Record
	for _, rank := range slices.Sorted(maps.Keys(lists)) {
		list := lists[rank]
		slices.SortStableFunc(list, func(a, b Record) int { return cmp.Compare(a.StartUS, b.StartUS) })
		all = append(all, list)
	}
	return all
}

// split divides the calls of a communicator among the iterations of another. nil if they are not the same in each.
func split(list []Record, rounds [][]Record) [][]Record {
	first := func(k int) int { // the first call in iteration k, or later
		return sort.Search(len(list), func(i int) bool { return list[i].StartUS >= rounds[k][0].StartUS })
	}
	n := median(len(rounds)-1, func(k int) int { return first(k+1) - first(k) })
	if n == 0 {
		return nil
	}
	begin := max(0, median(len(rounds), func(k int) int { return first(k) - k*n }))
	var parts [][]Record
	for k := 0; k < len(rounds) && begin+(k+1)*n <= len(list); k++ {
		part := list[begin+k*n:][:n]
		if !slices.EqualFunc(part, list[begin:][:n], func(a, b Record) bool { return a.kind() == b.kind() }) {
			break
		}
		parts = append(parts, part)
	}
	return parts
}

// interleave puts the parts of each of n iterations together, in the order of their median times since its begin. It
// returns the calls of all, and how many an iteration has.
func interleave(parts [][][]Record, n int) (calls []Record, period int) {
	type place struct {
		part, at int
		since    float64
	}
	var order []place
	for p := range parts {
		for at := range parts[p][0] {
			since := median(n, func(k int) float64 { return parts[p][k][at].StartUS - parts[0][k][0].StartUS })
			order = append(order, place{p, at, since})
		}
	}
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(a.since, b.since) })
	for k := range n {
		for _, o := range order {
			calls = append(calls, parts[o.part][k][o.at])
		}
	}
	return calls, len(order)
}
