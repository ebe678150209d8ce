package schedule

import (
	"fmt"
	"strconv"
	"strings"

	"lightpath/plans"
)

// Seats assign ranks to the positions of an algorithm: rank seats[k] does the work of position k. Blocks still belong
// to ranks, so the result of the collective does not change; only the pairs of ranks that communicate change.
//
// In a name, seats follow "~": numbers joined by ".", with runs of three or more numbers written as first-last. So
// ring~0-3.7-4 is the ring 0, 1, 2, 3, 7, 6, 5, 4.

// Seated returns the name of an algorithm with seats. It returns the name unchanged if every position keeps its rank,
// or if the name already has seats.
func Seated(algorithm string, seats []int) string {
	if seated(seats) == nil || strings.Contains(algorithm, "~") {
		return algorithm
	}
	return algorithm + "~" + runs(seats)
}

// seated returns nil if every position keeps its rank, and seats otherwise.
func seated(seats []int) []int {
	for k, rank := range seats {
		if k != rank {
			return seats
		}
	}
	return nil
}

// runs encodes a list of numbers.
func runs(list []int) string {
	var items []string
	for i := 0; i < len(list); {
		k := i + 1
		if k < len(list) {
			if step := list[k] - list[i]; step == 1 || step == -1 {
				for k < len(list) && list[k]-list[k-1] == step {
					k++
				}
			}
		}
		if k < i+3 {
			k = i + 1
			items = append(items, strconv.Itoa(list[i]))
		} else {
			items = append(items, fmt.Sprintf("%d-%d", list[i], list[k-1]))
		}
		i = k
	}
	return strings.Join(items, ".")
}

// parseSeats is the inverse of runs. It rejects encodings that runs does not write.
func parseSeats(text string) ([]int, error) {
	var list []int
	for item := range strings.SplitSeq(text, ".") {
		first, last, run := strings.Cut(item, "-")
		if !run {
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || min(a, b) < 0 || max(a, b) >= plans.MaxRanks ||
			len(list)+max(a-b, b-a) >= plans.MaxRanks {
			return nil, fmt.Errorf("%q, want a rank or a run of ranks below %d", item, plans.MaxRanks)
		}
		for ; a != b; a += sign(b - a) {
			list = append(list, a)
		}
		list = append(list, b)
	}
	if runs(list) != text {
		return nil, fmt.Errorf("%q, want the form %q", text, runs(list))
	}
	return list, nil
}

func sign(v int) int {
	if v < 0 {
		return -1
	}
	return 1
}

// checkSeats returns an error unless seats contain each of n ranks once.
func checkSeats(seats []int, n int) error {
	if len(seats) != n {
		return fmt.Errorf("%w: %d seats for %d ranks", ErrRanks, len(seats), n)
	}
	seen := make([]bool, n)
	for _, r := range seats {
		if r >= n || seen[r] {
			return fmt.Errorf("%w: seats %s, want each of %d ranks once", ErrOrder, runs(seats), n)
		}
		seen[r] = true
	}
	return nil
}

// seat replaces the ranks of all moves by those of seats.
func (b *builder) seat(seats []int) {
	if seats == nil {
		return
	}
	s := b.Schedule
	s.Root = seats[s.Root]
	b.moves = 0
	list := func(moves []Move) []Move {
		var to []Move
		for _, m := range moves {
			to = b.seatMove(to, m, seats)
		}
		return to
	}
	s.Pre, s.Post = list(s.Pre), list(s.Post)
	for i := range s.Steps {
		s.Steps[i].Transfers, s.Steps[i].Post = list(s.Steps[i].Transfers), list(s.Steps[i].Post)
	}
}

// seatMove appends m with the ranks of seats. It appends several moves if the blocks of m are no longer consecutive.
func (b *builder) seatMove(to []Move, m Move, seats []int) []Move {
	from, dst := b.ofRanks(m.From.Buf), b.ofRanks(m.To.Buf)
	at := func(r Ref, ranks bool, k int) Ref {
		c := r.Chunk + k
		if ranks {
			c = seats[c/b.Sub]*b.Sub + c%b.Sub
		}
		return Ref{r.Buf, c}
	}
	for k := range m.Count {
		to = b.appendMove(to, Move{seats[m.Src], seats[m.Dst], at(m.From, from, k), at(m.To, dst, k), 1, m.Reduce})
	}
	return to
}

// ofRanks reports whether the blocks of a buffer belong to ranks.
func (b *builder) ofRanks(buf Buffer) bool {
	switch b.Collective {
	case AllGather, Gather:
		return buf == Output
	case ReduceScatter, Scatter:
		return buf == Input
	case AllToAll:
		return buf != Scratch
	}
	return false
}
