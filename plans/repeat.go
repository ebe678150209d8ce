package plans

import (
	"math"
	"slices"
)

// leastRepeats is the least number of entries of a plane that is searched for repetitions, and that a repetition must
// save.
const leastRepeats = 8

// triesPerEntry is how many periods are tried per entry of a plane, at first: entries that do not repeat
// soon do not repeat.
const triesPerEntry = 8

// FindRepeats sets p.Repeats to the entries that repeat, and makes them repeat exactly: their times and
// bytes move by less than rounding errors of the sums that they come from. CCTUS follows the times.
func (p *Plan) FindRepeats() {
	p.Repeats = nil
	var n *names
	for j, entries := range p.Planes {
		if len(entries) < leastRepeats {
			continue
		}
		if n == nil {
			n = namesOf(p)
		}
		if found := n.findRepeats(entries); found != nil {
			if p.Repeats == nil {
				p.Repeats = make([][]Repeat, len(p.Planes))
			}
			p.Repeats[j] = found
		}
	}
	if p.Repeats == nil {
		return
	}
	p.CCTUS = 0
	for _, entries := range p.Planes {
		for i := range entries {
			if entries[i].Kind != Reconfigure {
				p.CCTUS = math.Max(p.CCTUS, entries[i].EndUS)
			}
		}
	}
}

// findRepeats returns the repetitions of a plane, from its beginning, each the longest that begins where
// it does.
func (n *names) findRepeats(entries []Entry) []Repeat {
	var found []Repeat
	tries := triesPerEntry * len(entries)
	for at := 0; at+leastRepeats <= len(entries) && tries > 0; {
		var best Repeat
		tries -= maxPeriod
		for period := 1; period <= maxPeriod && at+2*period <= len(entries); period++ {
			if rep := n.repeatFrom(entries, at, period); rep.Count*period > best.Count*best.Period {
				best = rep
			}
			if best.Count*best.Period == len(entries)-at {
				break
			}
		}
		if best.Period*(best.Count-1) < leastRepeats || !n.settleRepeat(&best, entries) {
			at++
			continue
		}
		found = append(found, best)
		at += best.Period * best.Count
	}
	return found
}

// repeatFrom returns how often the entries from at on repeat with a period; Count is 0 if they do not.
func (n *names) repeatFrom(entries []Entry, at, period int) Repeat {
	first, second := entries[at:at+period], entries[at+period:at+2*period]
	rep := Repeat{From: at, Period: period}
	for k := range first {
		if e, f := &first[k], &second[k]; e.Kind == Transmit && rep.StepBy == 0 {
			rep.StepBy = f.Step - e.Step
		} else if e.Kind != Transmit && f.Kind != Transmit && rep.ToBy == 0 {
			rep.ToBy = n.of(f.To).number - n.of(e.To).number
		}
	}
	for count := 1; at+(count+1)*period <= len(entries); count++ {
		// The time of a repetition is known the better the more of them there are.
		last := &entries[at+count*period]
		rep.ByUS = (last.StartUS - first[0].StartUS) / float64(count)
		for k := range first {
			if !n.near(&rep, &first[k], &entries[at+count*period+k], count) {
				return rep
			}
		}
		rep.Count = count + 1
	}
	return rep
}

// near reports whether f is e in repetition i, except for rounding.
func (n *names) near(rep *Repeat, e, f *Entry, i int) bool {
	if e.Joint != "" || f.Joint != "" || e.Kind != f.Kind || !slices.Equal(e.Flows, f.Flows) ||
		(e.Flows == nil) != (f.Flows == nil) {
		return false
	}
	want := rep.shifted(e, i)
	return want.Step == f.Step && n.sameMap(rep, e, f, i) && math.Abs(e.Bytes-f.Bytes) <= 1e-12*e.Bytes &&
		sameBut(want.StartUS, f.StartUS) && sameBut(want.EndUS, f.EndUS)
}

// sameBut reports whether two times are the same but for rounding: well within [Tolerance].
func sameBut(a, b float64) bool { return math.Abs(a-b) <= 1e-3*Tolerance(a, b) }

// settleRepeat sets the entries of a repetition to its exact values. It leaves out the last ones if they would move too
// far, and reports false if nothing repeats then.
func (n *names) settleRepeat(rep *Repeat, entries []Entry) bool {
	first := slices.Clone(entries[rep.From : rep.From+rep.Period])
	last := entries[rep.From+(rep.Count-1)*rep.Period]
	rep.ByUS = (last.StartUS - first[0].StartUS) / float64(rep.Count-1)
	for i := 1; i < rep.Count; i++ {
		for k := range first {
			e := &entries[rep.From+i*rep.Period+k]
			if !n.near(rep, &first[k], e, i) {
				rep.Count = i
				return i > 1
			}
		}
		for k := range first {
			e := &entries[rep.From+i*rep.Period+k]
			want := rep.shifted(&first[k], i)
			e.Bytes, e.StartUS, e.EndUS = want.Bytes, want.StartUS, want.EndUS
		}
	}
	return true
}
