package bench

import (
	"fmt"
	"io"
	"math"
)

// WriteTable prints results with nccl-tests' columns: one row a size, out of place and in
// place side by side.
func WriteTable(w io.Writer, results []Result) {
	fmt.Fprintf(w, "#\n# %50s %-42s %s\n", "", "out-of-place", "in-place")
	fmt.Fprintf(w, "# %12s %12s %9s %6s %5s %9s %8s %8s %7s   %9s %8s %8s %7s\n",
		"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")
	fmt.Fprintf(w, "# %12s %12s %9s %6s %5s %9s %8s %8s %7s   %9s %8s %8s %7s\n",
		"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "")
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
		if i < len(results) && results[i].InPlace && results[i].Bytes == r.Bytes {
			cells(w, results[i])
			i++
		}
		fmt.Fprintln(w)
	}
	writeFooter(w, results)
}

func writeFooter(w io.Writer, results []Result) {
	var wrong int64
	var sum float64
	for _, r := range results {
		wrong += r.Wrong
		sum += r.BusBW
	}
	verdict := "OK"
	if wrong > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "# Out of bounds values : %d %s\n", wrong, verdict)
	if len(results) > 0 {
		fmt.Fprintf(w, "# Avg bus bandwidth    : %g\n", math.Round(sum/float64(len(results))*1e4)/1e4)
	}
}

func cells(w io.Writer, r Result) {
	fmt.Fprintf(w, " %9s %8.2f %8.2f %7d", number(r.TimeUS), r.AlgBW, r.BusBW, r.Wrong)
}

// number prints a time with three or so significant digits, as nccl-tests does.
func number(us float64) string {
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
	switch r.Collective {
	case "allreduce", "reduce", "reducescatter":
		return r.Op
	}
	return "none"
}

func rootName(r Result) string {
	switch r.Collective {
	case "broadcast", "reduce", "gather", "scatter":
		return fmt.Sprint(r.Root)
	}
	return "-1"
}
