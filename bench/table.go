package bench

import (
	"fmt"
	"io"
	"math"

	"lightpath/collectives/schedule"
)

// WriteTable prints results with nccl-tests' columns: a row per size, out of place and in place side by side.
func WriteTable(w io.Writer, results []Result) {
	head := func(columns ...any) {
		fmt.Fprintf(w, "# %12s %12s %9s %6s %5s %9s %8s %8s %7s   %9s %8s %8s %7s\n", columns...)
	}
	fmt.Fprintf(w, "#\n# %50s %-42s %s\n", "", "out-of-place", "in-place")
	head("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")
	head("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "")
	for i := 0; i < len(results); {
		r := results[i]
		fmt.Fprintf(w, "  %12d %12d %9s %6s %5s", r.Bytes, r.Count, r.Type, opName(r), rootName(r))
		if r.InPlace {
			fmt.Fprintf(w, " %9s %8s %8s %7s", "-", "-", "-", "-")
		} else {
			cells(w, r)
			i++
		}
		fmt.Fprint(w, "  ")
		if i < len(results) && results[i].twinOf(&r) {
			cells(w, results[i])
			i++
		}
		fmt.Fprintln(w)
	}
	writeFooter(w, results)
}

// twinOf reports whether r is the in-place run of the row that o began.
func (r *Result) twinOf(o *Result) bool {
	return r.InPlace && r.Bytes == o.Bytes && r.Type == o.Type && r.Op == o.Op && r.Root == o.Root
}

func writeFooter(w io.Writer, results []Result) {
	var wrong int64
	var sum float64
	checked := len(results) == 0
	for _, r := range results {
		if r.Wrong != nil {
			checked = true
			wrong += *r.Wrong
		}
		sum += r.BusBW
	}
	switch {
	case !checked:
		fmt.Fprintln(w, "# Out of bounds values : not checked")
	case wrong > 0:
		fmt.Fprintf(w, "# Out of bounds values : %d FAILED\n", wrong)
	default:
		fmt.Fprintln(w, "# Out of bounds values : 0 OK")
	}
	if len(results) > 0 {
		fmt.Fprintf(w, "# Avg bus bandwidth    : %g\n", math.Round(sum/float64(len(results))*1e4)/1e4)
	}
}

func cells(w io.Writer, r Result) {
	wrong := "N/A" // as nccl-tests prints it
	if r.Wrong != nil {
		wrong = fmt.Sprint(*r.Wrong)
	}
	fmt.Fprintf(w, " %9s %8.2f %8.2f %7s", formatUS(r.TimeUS), r.AlgBW, r.BusBW, wrong)
}

// formatUS writes a time in microseconds with about three significant digits, as nccl-tests does.
func formatUS(us float64) string {
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
	if c, err := schedule.ParseCollective(r.Collective); err == nil && Reduces(c) {
		return r.Op
	}
	return "none"
}

func rootName(r Result) string {
	if c, err := schedule.ParseCollective(r.Collective); err == nil && hasRoot(c) {
		return fmt.Sprint(r.Root)
	}
	return "-1"
}
