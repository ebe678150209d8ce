package bench

import (
	"fmt"
	"io"
	"math"

	"lightpath/collectives/schedule"
)

// Table prints results with nccl-tests' columns as they come: a row per size, out of place and in place side by side.
type Table struct {
	w     io.Writer
	row   *Result // the first result of the open row
	wrong *int64  // elements; nil: no result was checked
	sum   float64 // of bus bandwidths
	count int     // of results
}

// NewTable prints the head of a table.
func NewTable(w io.Writer) *Table {
	head := func(columns ...any) {
		fmt.Fprintf(w, "# %12s %12s %9s %6s %5s %9s %8s %8s %7s   %9s %8s %8s %7s\n", columns...)
	}
	fmt.Fprintf(w, "#\n# %50s %-42s %s\n", "", "out-of-place", "in-place")
	head("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")
	head("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "")
	return &Table{w: w}
}

// Add prints a result.
func (t *Table) Add(r Result) {
	if t.row == nil || !r.twinOf(t.row) {
		t.Break()
		fmt.Fprintf(t.w, "  %12d %12d %9s %6s %5s", r.Bytes, r.Count, r.Type, opName(r), rootName(r))
		if r.InPlace {
			fmt.Fprintf(t.w, " %9s %8s %8s %7s", "-", "-", "-", "-")
		}
	}
	if r.InPlace {
		fmt.Fprint(t.w, "  ")
	}
	t.row = &r
	t.cells(&r)
	if r.InPlace {
		t.Break()
	}
	t.sum += r.BusBW
	t.count++
	if r.Wrong != nil {
		if t.wrong == nil {
			t.wrong = new(int64)
		}
		*t.wrong += *r.Wrong
	}
}

// Break ends the open row, if there is one.
func (t *Table) Break() {
	if t.row != nil {
		fmt.Fprintln(t.w)
		t.row = nil
	}
}

// End prints what is below the rows.
func (t *Table) End() {
	t.Break()
	switch {
	case t.count > 0 && t.wrong == nil:
		fmt.Fprintln(t.w, "# Out of bounds values : not checked")
	case t.wrong != nil && *t.wrong > 0:
		fmt.Fprintf(t.w, "# Out of bounds values : %d FAILED\n", *t.wrong)
	default:
		fmt.Fprintln(t.w, "# Out of bounds values : 0 OK")
	}
	if t.count > 0 {
		fmt.Fprintf(t.w, "# Avg bus bandwidth    : %g\n", math.Round(t.sum/float64(t.count)*1e4)/1e4)
	}
}

func (t *Table) cells(r *Result) {
	wrong := "N/A" // as nccl-tests prints it
	if r.Wrong != nil {
		wrong = fmt.Sprint(*r.Wrong)
	}
	fmt.Fprintf(t.w, " %9s %8.2f %8.2f %7s", Micros(r.TimeUS), r.AlgBW, r.BusBW, wrong)
}

// twinOf reports whether r is the in-place run of the row that o began.
func (r *Result) twinOf(o *Result) bool {
	return r.InPlace && r.Bytes == o.Bytes && r.Type == o.Type && r.Op == o.Op && r.Root == o.Root
}

// Micros writes a time in microseconds with about three significant digits, as nccl-tests does.
func Micros(us float64) string {
	switch {
	case us >= 10000:
		return fmt.Sprintf("%.0f", us)
	case us >= 100:
		return fmt.Sprintf("%.1f", us)
	default:
		return fmt.Sprintf("%.2f", us)
	}
}

func opName(r Result) string {
	if c, err := schedule.ParseCollective(r.Collective); err == nil && c.Reduces() {
		return r.Op
	}
	return "none"
}

func rootName(r Result) string {
	if c, err := schedule.ParseCollective(r.Collective); err == nil && c.Rooted() {
		return fmt.Sprint(r.Root)
	}
	return "-1"
}
