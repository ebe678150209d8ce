package schedule

import (
	"fmt"
	"strconv"
	"strings"

	"lightpath/plans"
)

// Seats say which rank takes which part in an algorithm: seats[k] is the rank that does what the
// algorithm has rank k do. Blocks stay those of ranks, so every collective computes what it did; what
// changes is who talks to whom. In a name they follow "~", numbers joined by "." with runs
// of three or more written as first-last: ring~0-3.7-4 goes round 0, 1, 2, 3, 7, 6, 5, 4.

// Seated returns the name of an algorithm with its parts taken by seats. Seats that change nothing
// are left out, and a name that has seats keeps its own.
func Seated(algorithm string, seats []int) string {
	if seated(seats) == nil || strings.Contains(algorithm, "~") {
		return algorithm
	}
	return algorithm + "~" + runs(seats)
}

// seated returns nil for seats that change nothing.
func seated(seats []int) []int {
	for k, rank := range seats {
		if k != rank {
			return seats
		}
	}
	return nil
}

// runs writes a list of numbers.
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

// parseSeats is the inverse of runs. Only what it writes is taken.
func parseSeats(text string) ([]int, error) {
	var list []int
	for item := range strings.SplitSeq(text, ".") {
		first, last, run := strings.Cut(item, "-")
		if !run {
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || min(a, b) < 0 || max(a, b) >= plans.MaxRanks || len(list)+max(a-b, b-a) >= plans.MaxRanks {
			return nil, fmt.Errorf("%q is no rank or run of ranks below %d", item, plans.MaxRanks)
		}
		for ; a != b; a += sign(b - a) {
			list = append(list, a)
		}
		list = append(list, b)
	}
	if runs(list) != text {
		return nil, fmt.Errorf("%q is written %q", text, runs(list))
	}
	return list, nil
}

func sign(v int) int {
	if v < 0 {
		return -1
	}
	return 1
}

// checkSeats reports seats that are not each of n ranks once.
func checkSeats(seats []int, n int) error {
	if len(seats) != n {
		return fmt.Errorf("%w: %d seats for %d ranks", ErrRanks, len(seats), n)
	}
	seen := make([]bool, n)
	for _, r := range seats {
		if r >= n || seen[r] {
			return fmt.Errorf("%w: seats %s are not each of %d ranks once", ErrOrder, runs(seats), n)
		}
		seen[r] = true
	}
	return nil
}

// seat gives the parts of a schedule to other ranks.
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

// seatMove appends what becomes of a move: several where its blocks are no longer neighbours.
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
