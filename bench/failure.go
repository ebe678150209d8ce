package bench

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"lightpath/internal/brief"
	"lightpath/shim/status"
)

// rankError is the error of one rank.
type rankError struct {
	rank int
	how  end
	text string
}

// end says how a rank failed. Smaller values are nearer to the cause.
type end int

const (
	died    end = iota // the process ended without a report, or was suspended: other ranks have lost it
	said               // the rank reported an error
	stopped            // the launcher stopped the rank after another one had failed
)

// fault is an error with the ranks that have it.
type fault struct {
	how   end
	text  string
	ranks []int
}

func (f *fault) String() string {
	slices.Sort(f.ranks)
	return status.ListRanks(f.ranks) + ": " + f.text
}

// place is where a rank met an error that it passed on to others.
var place = regexp.MustCompile(`\brank \d+ (plane \d+ epoch)`)

// anywhere returns the text of an error without the rank that met it, whose number differs between equal errors.
func anywhere(rank int, text string) string {
	own := regexp.MustCompile(fmt.Sprintf(`\brank %d\b:? ?`, rank))
	return place.ReplaceAllString(own.ReplaceAllString(text, ""), "$1")
}

// faults joins equal errors, the nearest to the cause first, then in order of arrival. After a failure most ranks
// report the same.
func faults(errs []rankError) []*fault {
	var all []*fault
	same := map[string]*fault{}
	for _, e := range errs {
		text := strings.TrimSuffix(e.text, status.ReportedByPeer)
		key := anywhere(e.rank, text)
		f := same[key]
		switch {
		case f == nil:
			f = &fault{how: e.how, text: text}
			same[key], all = f, append(all, f)
		case f.text != text:
			f.text = key // the line names the ranks
		}
		f.ranks = append(f.ranks, e.rank)
	}
	slices.SortStableFunc(all, func(a, b *fault) int { return cmp.Compare(a.how, b.how) })
	return all
}

// maxReason bounds the first line of a job's error, in bytes.
const maxReason = 160

// summary returns a line with the rank at fault and its reason, then an indented line for each other error. If the
// reason is longer than a line, the whole of it follows, too.
func summary(errs []rankError) string {
	all := faults(errs)
	whole := all[0].String()
	line, _, _ := strings.Cut(whole, "\n")
	line = brief.Text(line, maxReason)
	var b strings.Builder
	b.WriteString(line)
	for _, f := range all {
		if text := f.String(); text != line {
			b.WriteString("\n  " + strings.ReplaceAll(text, "\n", "\n    "))
		}
	}
	return b.String()
}
