package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Waiting is the state of a communicator in which a rank has waited for another for longer than patience.
const Waiting = "waiting"

// patience is the time in seconds after which a waiting operation is reported.
const patience = 1.0

// diagnose fills in the state of a communicator and one line: the faults that ranks see, then what each rank waits for.
func diagnose(c *Comm) {
	c.State, c.Diagnosis = c.judge()
	if s := c.faults(); s != "" && c.State == Waiting {
		c.Diagnosis = s + "; " + c.Diagnosis
	}
}

func (c *Comm) judge() (state, text string) {
	if err := c.failure(); err != "" {
		return Failed, err
	}
	if i := slices.IndexFunc(c.Ranks, func(r Rank) bool { return r.Answer == Answered && r.State == Making }); i >= 0 {
		return Making, c.making()
	}
	absent := c.which(func(r *Rank) bool { return r.Answer != Answered && r.Answer != Unasked })
	inside := c.which(func(r *Rank) bool { return r.Op != nil })
	longest := 0.0
	for _, r := range inside {
		longest = max(longest, r.Op.Seconds)
	}
	switch {
	case len(absent) == len(c.Ranks) && len(absent) > 0:
		return Waiting, "no rank answers: " + describe(absent)
	case len(inside) == 0:
		return c.idle(absent)
	case longest < patience && len(absent) == 0:
		return Healthy, "in " + name(inside[0])
	}
	if text := mismatch(inside); text != "" {
		return Waiting, text
	}
	if text := c.blame(inside, absent, longest); text != "" {
		return Waiting, text
	}
	return c.together(inside, longest)
}

// failure returns the error of a communicator. It prefers an error that happened on the reporting rank itself.
func (c *Comm) failure() string {
	best := ""
	for i := range c.Ranks {
		r := &c.Ranks[i]
		if r.State != Failed {
			continue
		}
		told := strings.HasSuffix(r.Error, ReportedByPeer)
		if best == "" || !told {
			best = fmt.Sprintf("failed: rank %d: %s", r.Rank, r.Error)
		}
		if !told {
			return best
		}
	}
	return best
}

// ReportedByPeer ends the text of an error that happened on another rank.
const ReportedByPeer = " (reported by another rank)"

func (c *Comm) making() string {
	if c.Size == 0 {
		return "is being made: its ranks have not all met"
	}
	var missing []int
	for r := range c.Size {
		if c.known(r) == nil {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		return "is being made: all ranks are there"
	}
	return fmt.Sprintf("is being made: %s, not seen on this host, %s still to come", ListRanks(missing),
		verb(len(missing), "is", "are"))
}

// idle judges a communicator with no operation in progress anywhere.
func (c *Comm) idle(absent []*Rank) (state, text string) {
	most, least := uint64(0), ^uint64(0)
	for i := range c.Ranks {
		if r := &c.Ranks[i]; r.Answer == Answered {
			most, least = max(most, r.Collectives), min(least, r.Collectives)
		}
	}
	if len(absent) > 0 {
		return Waiting, fmt.Sprintf("no rank is in a call; %s", describe(absent))
	}
	if most == least {
		return Healthy, fmt.Sprintf("no rank is in a call; all have made %d collectives", most)
	}
	return Healthy, fmt.Sprintf("no rank is in a call; they have made between %d and %d collectives", least, most)
}

// mismatch finds ranks that made different calls with one number.
func mismatch(inside []*Rank) string {
	for _, a := range inside {
		if a.Op.Seq == 0 {
			continue
		}
		var same, other []*Rank
		for _, b := range inside {
			switch {
			case b.Op.Seq != a.Op.Seq:
			case b.Op.Signature == a.Op.Signature:
				same = append(same, b)
			default:
				other = append(other, b)
			}
		}
		if len(other) == 0 {
			continue
		}
		if len(other) > len(same) {
			same, other = other, same
		}
		return fmt.Sprintf("operation %d: %s called %s, %s called %s", a.Op.Seq, listOf(other), other[0].Op.Detail,
			listOf(same), same[0].Op.Detail)
	}
	return ""
}

// blame names the ranks that the others wait for, unless they wait for each other: ranks that do not answer or have not
// made the call, else ranks in an earlier call.
func (c *Comm) blame(inside, absent []*Rank, longest float64) string {
	top := slices.MaxFunc(inside, func(a, b *Rank) int { return cmp.Compare(a.Op.Seq, b.Op.Seq) })
	late := slices.Clone(absent)
	for i := range c.Ranks {
		r := &c.Ranks[i]
		if r.Answer == Answered && r.Op == nil && (r.Collectives < top.Op.Seq || awaited(inside, r.Rank)) {
			late = append(late, r)
		}
	}
	if len(late) == 0 {
		late = behind(inside, top.Op.Seq)
	}
	if len(late) == 0 {
		return ""
	}
	slices.SortFunc(late, func(a, b *Rank) int { return a.Rank - b.Rank })
	waiting := slices.DeleteFunc(slices.Clone(inside), func(r *Rank) bool { return slices.Contains(late, r) })
	if len(waiting) == 0 {
		return ""
	}
	who, wait := listOf(waiting), verb(len(waiting), "waits", "wait")
	if len(waiting)+len(late) == len(c.Ranks) {
		who, wait = "everybody else", "waits"
	}
	return fmt.Sprintf("%s %s for %s%s; %s %s in %s for %s", who, wait, describe(late), where(waiting, late),
		pronoun(len(waiting)), verb(len(waiting), "is", "are"), name(top), ago(longest))
}

// behind returns the ranks in the earliest collective, if that is before number seq.
func behind(inside []*Rank, seq uint64) (late []*Rank) {
	least := seq
	for _, r := range inside {
		if r.Op.Seq > 0 {
			least = min(least, r.Op.Seq)
		}
	}
	for _, r := range inside {
		if r.Op.Seq == least && least < seq {
			late = append(late, r)
		}
	}
	return late
}

// awaited reports whether a rank waits for a message of the given rank.
func awaited(inside []*Rank, rank int) bool {
	return slices.ContainsFunc(inside, func(r *Rank) bool { return r.Op.Wait != nil && r.Op.Wait.Peer == rank })
}

// where names the plane on which waiting ranks wait for one of late, "" if there is none.
func where(waiting, late []*Rank) string {
	for _, r := range waiting {
		w := r.Op.Wait
		if w == nil {
			continue
		}
		if w.For == ForSwitch || w.For != ForTicket && slices.ContainsFunc(late, func(l *Rank) bool {
			return l.Rank == w.Peer
		}) && w.Plane >= 0 {
			return fmt.Sprintf(" (plane %d, epoch %d)", w.Plane, w.Epoch)
		}
	}
	return ""
}

// together judges ranks that are all in the same operation or in one-sided calls.
func (c *Comm) together(inside []*Rank, longest float64) (state, text string) {
	var stuck []*Rank
	for _, r := range inside {
		if r.Op.Wait != nil {
			stuck = append(stuck, r)
		}
	}
	calls := name(inside[0])
	for _, r := range inside[1:] {
		if name(r) != name(inside[0]) && !strings.Contains(calls, " and ") {
			calls += " and " + name(r)
		}
	}
	in := fmt.Sprintf("%s for %s", calls, ago(longest))
	if len(stuck) == 0 {
		return Healthy, fmt.Sprintf("%s in %s and moving", listOf(inside), in)
	}
	for _, kind := range []string{ForSwitch, ForTicket} {
		for _, r := range stuck {
			if w := r.Op.Wait; w.For == kind {
				return Waiting, fmt.Sprintf("in %s: rank %d waits for the %s", in, r.Rank, w.Text)
			}
		}
	}
	// A rank that others wait for, and that waits for none, blocks the rest.
	for _, r := range stuck {
		p := c.known(r.Op.Wait.Peer)
		if p != nil && p.Op != nil && p.Op.Wait == nil {
			return Waiting, fmt.Sprintf("in %s: rank %d waits for the %s; %s is in the call and at work", in, r.Rank,
				r.Op.Wait.Text, p.who())
		}
	}
	var words []string
	for _, r := range stuck[:min(len(stuck), 4)] {
		words = append(words, fmt.Sprintf("rank %d: %s", r.Rank, r.Op.Wait.Text))
	}
	return Waiting, fmt.Sprintf("in %s, each waiting for another: %s", in, strings.Join(words, "; "))
}
