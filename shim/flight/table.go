package flight

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Write prints the findings and, if all is set, every operation of every rank.
func Write(w io.Writer, dumps []*Dump, found []Finding, all bool) {
	for i := range found {
		fmt.Fprintln(w, found[i].String())
		for _, e := range found[i].Errors {
			fmt.Fprintf(w, "  rank %d: %s\n", e.Rank, e.Text)
		}
	}
	if !all {
		return
	}
	for _, d := range dumps {
		fmt.Fprintf(w, "\ncommunicator %s rank %d (%s, process %d), %d operations before these\n", d.Comm, d.Rank,
			d.Host, d.PID, d.Forgotten)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  #\toperation\tbytes\talgorithm\toutcome\tbefore the dump\ttook\tplanes\twaits for")
		for i := range d.Operations {
			o := &d.Operations[i]
			fmt.Fprintf(t, "  %d\t%s\t%d\t%s\t%s\t%v\t%v\t%s\t%s\n", o.Number, o.label(), o.Bytes, o.Algorithm, o.Outcome,
				time.Duration(d.Time-o.Arrived).Round(time.Microsecond),
				time.Duration(d.end(o)-o.Arrived).Round(100*time.Nanosecond), o.planes(), o.Wait)
		}
		_ = t.Flush() // to what cannot fail usefully
	}
}

// planes lists planes with their epochs.
func (o *Operation) planes() string {
	s := ""
	for i, l := range o.Planes {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprint(l.Plane)
		if l.Epoch > 0 {
			s += fmt.Sprintf("@%d", l.Epoch)
		}
	}
	return s
}
