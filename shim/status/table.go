package status

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Write prints a report: a line per communicator, and a line per rank if verbose is set or the communicator is not
// healthy.
func (r *Report) Write(w io.Writer, verbose bool) {
	if len(r.Comms) == 0 {
		fmt.Fprintln(w, "no communicators on this host")
	}
	for i := range r.Comms {
		c := &r.Comms[i]
		fmt.Fprintf(w, "communicator %s%s: %s: %s\n", c.ID, c.title(), c.State, c.Diagnosis)
		if verbose || c.State != Healthy {
			c.table(w)
		}
	}
	if len(r.Silent) > 0 {
		fmt.Fprintf(w, "no answer from these processes of this host: %v\n", r.Silent)
	}
}

// title describes a communicator without its state.
func (c *Comm) title() string {
	s := ""
	if c.Name != "" {
		s = fmt.Sprintf(" %q", c.Name)
	}
	if c.Size > 0 {
		s += fmt.Sprintf(" (%d ranks)", c.Size)
	}
	return s
}

func (c *Comm) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  rank\thost\tprocess\tstate\tcollectives\tgroups\tin\tfor\twaits for")
	for i := range c.Ranks {
		r := &c.Ranks[i]
		if r.Answer != Answered {
			fmt.Fprintf(t, "  %d\t%s\t%d\t%s\t\t\t\t\t\n", r.Rank, r.Host, r.PID, r.Answer)
			continue
		}
		in, since, wait := "-", ago(r.IdleSeconds), ""
		if r.Op != nil {
			in, since = name(r), ago(r.Op.Seconds)
			if r.Op.Wait != nil {
				wait = r.Op.Wait.Text
			}
		}
		fmt.Fprintf(t, "  %d\t%s\t%d\t%s\t%d\t%d\t%s\t%s\t%s\n", r.Rank, r.Host, r.PID, r.State, r.Collectives,
			r.Groups, in, since, wait)
	}
	_ = t.Flush() // to what cannot fail usefully
	c.ahead(w)
}

// ahead writes how well operations on circuits are predicted.
func (c *Comm) ahead(w io.Writer) {
	var all Ahead
	for i := range c.Ranks {
		if a := c.Ranks[i].Ahead; a != nil {
			all.Used += a.Used
			all.Asked += a.Asked
			all.HiddenSeconds += a.HiddenSeconds
			all.ExposedSeconds += a.ExposedSeconds
		}
	}
	if all.Used > 0 {
		fmt.Fprintf(w, "  on circuits: %d of %d calls had their ticket before; switching between calls: %.3g s hidden, "+
			"%.3g s waited for\n", all.Used, all.Used+all.Asked, all.HiddenSeconds, all.ExposedSeconds)
	}
}
