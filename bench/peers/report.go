package peers

import (
	"fmt"
	"io"
	"strings"

	"lightpath/bench"
	"lightpath/bench/figure"
)

// String returns the point on one line.
func (p *Point) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %d ranks %s:", p.Transport, p.Collective, p.Ranks, figure.Binary(float64(p.Bytes)))
	for _, c := range contenders() {
		if s := p.Contenders[c.Name]; s != nil {
			fmt.Fprintf(&b, " %s %s", c.Name, s.cell())
		}
	}
	if p.Ratio != nil {
		fmt.Fprintf(&b, "; %s", p.Ratio)
	}
	return b.String()
}

// String returns the estimate with its interval.
func (i *Interval) String() string { return fmt.Sprintf("%.2f [%.2f, %.2f]", i.Value, i.Low, i.High) }

// cell returns the median, or the reason why there is none.
func (s *Samples) cell() string {
	switch {
	case s.Lacks != "":
		return "-"
	case s.Wrong > 0:
		return "wrong"
	}
	return bench.Micros(s.MedianUS)
}

// names returns the contenders of the document, in their order.
func (d *Document) names() []string {
	seen := map[string]bool{}
	for _, p := range d.Points {
		for name := range p.Contenders {
			seen[name] = true
		}
	}
	var names []string
	for _, c := range contenders() {
		if seen[c.Name] {
			names = append(names, c.Name)
		}
	}
	return names
}

// WriteText prints nccl-tests' columns with a time for every contender, then the summary.
func (d *Document) WriteText(w io.Writer) {
	names := d.names()
	for i, p := range d.Points {
		if i == 0 || d.Points[i-1].Transport != p.Transport || d.Points[i-1].Collective != p.Collective ||
			d.Points[i-1].Ranks != p.Ranks {
			fmt.Fprintf(w, "#\n# %s, %s, %d ranks: medians of %d samples in us; ratio: best peer / %s, median over "+
				"rounds, 95 %% interval; least: of least samples; cpu: of the processor time of all ranks\n",
				p.Collective, p.Transport, p.Ranks, d.Rounds, Subject)
			fmt.Fprintf(w, "# %12s %12s %9s %6s %6s", "size (B)", "count", "type", "redop", "iters")
			for _, n := range names {
				fmt.Fprintf(w, " %15s", n)
			}
			fmt.Fprintf(w, " %8s %8s  %-20s %6s %6s %s\n", "algbw", "busbw", "ratio", "least", "cpu", "best")
		}
		fmt.Fprintf(w, "  %12d %12d %9s %6s %6d", p.Bytes, p.Count, p.Type, p.Op, p.Iters)
		for _, n := range names {
			text := "-"
			if s := p.Contenders[n]; s != nil {
				text = s.cell()
			}
			fmt.Fprintf(w, " %15s", text)
		}
		s := p.Contenders[Subject]
		fmt.Fprintf(w, " %8.2f %8.2f", s.AlgBW, s.BusBW)
		if p.Ratio != nil {
			fmt.Fprintf(w, "  %-20s %6.2f %6.2f %s", p.Ratio, p.LeastRatio, p.CPURatio, p.Best)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "#")
	fmt.Fprintln(w, d.summaryText())
}

// summaryText lists geometric means and exceptions.
func (d *Document) summaryText() string {
	t := figure.Table{Columns: []string{"transport", "collective", "ranks", "points", "geomean", "least",
		fmt.Sprintf("low end < %.2f", floor)}}
	for _, s := range d.Summaries {
		t.Add(s.Transport, s.Collective, s.ranks(), s.Points, fmt.Sprintf("%.2f", s.Geomean), fmt.Sprintf("%.2f", s.Least),
			s.Below)
	}
	return t.Text()
}

func (s Summary) ranks() string {
	if s.Ranks == 0 {
		return "all"
	}
	return fmt.Sprint(s.Ranks)
}

// exceptions returns the points whose interval begins below floor.
func (d *Document) exceptions() []*Point {
	var list []*Point
	for _, p := range d.Points {
		if p.Ratio != nil && p.Ratio.Low < floor {
			list = append(list, p)
		}
	}
	return list
}

// markdown returns the document as a section of bench/RESULTS.md.
func (d *Document) markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%d processors, medians of %d samples by turns; ratio: time of the best peer / Lightpath's in "+
		"the same round, median over rounds, with the 95 %% interval of a bootstrap over rounds.\n\n", d.Cores, d.Rounds)
	fmt.Fprintf(&b, "| transport | collective | ranks | points | geometric mean | least | low end under %.2f "+
		"|\n|---|---|---|---|---|---|---|\n", floor)
	for _, s := range d.Summaries {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %.2f | %.2f | %d |\n", s.Transport, s.Collective, s.ranks(), s.Points,
			s.Geomean, s.Least, s.Below)
	}
	fmt.Fprint(&b, "\n```\n")
	d.WriteText(&b)
	fmt.Fprint(&b, "```\n\nStarted as:\n")
	for _, l := range d.Libraries {
		fmt.Fprintf(&b, "- %s, %s, %d ranks (%s): `%s`\n", l.Name, l.Transport, l.Ranks, l.Library, l.Command)
	}
	for _, text := range append(append([]string(nil), d.LeftOut...), d.Failures...) {
		fmt.Fprintf(&b, "- %s\n", text)
	}
	if list := d.exceptions(); len(list) > 0 {
		fmt.Fprintf(&b, "\nPoints whose interval begins under %.2f:\n", floor)
		for _, p := range list {
			fmt.Fprintf(&b, "- %s\n", p)
		}
	}
	return []byte(b.String())
}
