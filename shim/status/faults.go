package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Fault is a sign of a fault that a rank sees.
type Fault struct {
	Plane int    `json:"plane"` // [Controller]: the controller of the planes
	Peer  int    `json:"peer"`  // the rank that does not answer on the plane; -1: the fault is at the rank itself
	Seen  string `json:"seen"`
	// Since is when a controller got the first question that it has not answered.
	Since time.Time `json:"since,omitzero"`
}

// Controller is the Plane of a fault of the planes' controller.
const Controller = -1

// maxFaults is the number of faults that a verdict names.
const maxFaults = 4

// Verdict returns the faults that explain what ranks see, the most certain first, and "" for none: interfaces, then the
// controller, then ranks that do not answer on a plane. seen holds the signs by rank, and who names a rank.
func Verdict(seen map[int][]Fault, who func(rank int) string) string {
	var texts []string
	asked := map[string]*silence{} // by what ranks see of the controller
	planes := map[int]*unanswered{}
	ranks := slices.Sorted(maps.Keys(seen))
	for _, rank := range ranks {
		for _, f := range seen[rank] {
			switch {
			case f.Plane == Controller:
				if asked[f.Seen] == nil {
					asked[f.Seen] = &silence{since: f.Since}
				}
				asked[f.Seen].add(rank, f.Since)
			case f.Peer < 0:
				texts = append(texts, fmt.Sprintf("plane %d of %s: %s", f.Plane, who(rank), f.Seen))
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(asked)) {
		s := asked[text]
		since := s.since.Local().Format(time.TimeOnly)
		texts = append(texts, fmt.Sprintf("%s since %s (%s)", text, since, ListRanks(s.ranks)))
	}
	for _, rank := range ranks {
		for _, f := range seen[rank] {
			if f.Plane == Controller || f.Peer < 0 || broken(seen[rank], f.Plane) || broken(seen[f.Peer], f.Plane) {
				continue // an interface explains it
			}
			if planes[f.Plane] == nil {
				planes[f.Plane] = &unanswered{}
			}
			planes[f.Plane].add(rank, f.Peer, f.Seen)
		}
	}
	for _, plane := range slices.Sorted(maps.Keys(planes)) {
		texts = append(texts, planes[plane].verdict(plane, who))
	}
	if n := len(texts) - maxFaults; n > 0 {
		texts = append(texts[:maxFaults], fmt.Sprintf("%d more faults", n))
	}
	return strings.Join(texts, "; ")
}

// silence is a controller that does not answer ranks.
type silence struct {
	since time.Time
	ranks []int
}

func (s *silence) add(rank int, since time.Time) {
	if s.ranks = append(s.ranks, rank); since.Before(s.since) {
		s.since = since
	}
}

// broken reports whether a rank sees a fault of its own interface on a plane.
func broken(seen []Fault, plane int) bool {
	return slices.ContainsFunc(seen, func(f Fault) bool { return f.Plane == plane && f.Peer < 0 })
}

// unanswered is the pairs of ranks that do not reach each other on one plane.
type unanswered struct {
	pairs map[[2]int]bool
	seen  string
}

func (u *unanswered) add(a, b int, seen string) {
	if u.pairs == nil {
		u.pairs, u.seen = map[[2]int]bool{}, seen
	}
	u.pairs[[2]int{min(a, b), max(a, b)}] = true
}

// verdict names the rank that is in every pair, if there are several pairs, or else all ranks of the pairs.
func (u *unanswered) verdict(plane int, who func(int) string) string {
	count := map[int]int{}
	for p := range u.pairs {
		count[p[0]]++
		count[p[1]]++
	}
	all := slices.Sorted(maps.Keys(count))
	for _, rank := range all {
		if n := len(u.pairs); n > 1 && count[rank] == n {
			others := slices.DeleteFunc(all, func(r int) bool { return r == rank })
			return fmt.Sprintf("plane %d of %s: %s, between it and %s", plane, who(rank), u.seen, ListRanks(others))
		}
	}
	return fmt.Sprintf("plane %d between %s: %s", plane, ListRanks(all), u.seen)
}

// faults returns the verdict on what the ranks of a communicator see.
func (c *Comm) faults() string {
	seen := map[int][]Fault{}
	for i := range c.Ranks {
		if r := &c.Ranks[i]; len(r.Faults) > 0 {
			seen[r.Rank] = r.Faults
		}
	}
	return Verdict(seen, func(rank int) string {
		if r := c.known(rank); r != nil {
			return r.who()
		}
		return fmt.Sprintf("rank %d", rank)
	})
}
