package status

import (
	"fmt"
	"strings"
	"time"
)

// which returns the ranks that f picks.
func (c *Comm) which(f func(*Rank) bool) []*Rank {
	var some []*Rank
	for i := range c.Ranks {
		if f(&c.Ranks[i]) {
			some = append(some, &c.Ranks[i])
		}
	}
	return some
}

// who returns the name of a rank and its process.
func (r *Rank) who() string {
	if r.Host == "" {
		return fmt.Sprintf("rank %d", r.Rank)
	}
	return fmt.Sprintf("rank %d (%s, process %d)", r.Rank, r.Host, r.PID)
}

// doing describes what a rank that others wait for does instead.
func (r *Rank) doing() string {
	switch {
	case r.Answer == Stopped:
		return "whose process is stopped"
	case r.Answer == Gone:
		return "whose process has ended"
	case r.Answer != Answered:
		return "which does not answer"
	case r.Op != nil:
		return "which is in " + name(r)
	case r.Last != "":
		return fmt.Sprintf("which has made no call for %s since %s #%d", ago(r.IdleSeconds), r.Last, r.Collectives)
	}
	return "which has made no call yet"
}

// describe lists ranks with what they do; of many, only the first.
func describe(ranks []*Rank) string {
	const most = 3
	var words []string
	for _, r := range ranks[:min(len(ranks), most)] {
		words = append(words, r.who()+", "+r.doing())
	}
	s := strings.Join(words, ", and ")
	if n := len(ranks) - most; n > 0 {
		s += fmt.Sprintf(", and %d more", n)
	}
	return s
}

// name returns the operation of a rank, as "AllReduce #42".
func name(r *Rank) string {
	if r.Op.Seq == 0 {
		return r.Op.Call
	}
	return fmt.Sprintf("%s #%d", r.Op.Call, r.Op.Seq)
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func pronoun(n int) string { return verb(n, "it", "they") }

// ago formats a number of seconds.
func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func listOf(ranks []*Rank) string {
	numbers := make([]int, len(ranks))
	for i, r := range ranks {
		numbers[i] = r.Rank
	}
	return ListRanks(numbers)
}

// maxSpans is the most ranges of ranks in a text.
const maxSpans = 8

// ListRanks lists ranks in ascending order, as "ranks 0-3, 7". Of many ranges, it lists the first.
func ListRanks(ranks []int) string {
	var spans []string
	for i := 0; i < len(ranks); {
		if len(spans) == maxSpans {
			return fmt.Sprintf("ranks %s and %d more", strings.Join(spans, ", "), len(ranks)-i)
		}
		k := i
		for k+1 < len(ranks) && ranks[k+1] == ranks[k]+1 {
			k++
		}
		if k == i {
			spans = append(spans, fmt.Sprint(ranks[i]))
		} else {
			spans = append(spans, fmt.Sprintf("%d-%d", ranks[i], ranks[k]))
		}
		i = k + 1
	}
	return verb(len(ranks), "rank ", "ranks ") + strings.Join(spans, ", ")
}
