package exchange

import (
	"fmt"
	"io"
	"math"
)

// WriteTable prints results, the orders of one matrix together, with the gain over plain order.
func WriteTable(w io.Writer, o *Options, all []*Result) {
	where := "in memory"
	if o.Kernel {
		where = "in the kernel"
	}
	fmt.Fprintf(w, "%d ranks, %d planes %s of %v per port, reconfiguration %v, alpha %v; times in ms\n\n",
		o.Ranks, o.Planes, where, o.Rate, o.Reconfig, o.Alpha)
	fmt.Fprintf(w, "%-22s %-8s %12s %10s %10s %10s %8s %9s %9s %9s %6s\n",
		"matrix", "order", "port bytes", "bound", "predicted", "measured", "error", "min", "max", "vs plain", "wrong")
	plain := math.NaN()
	for _, r := range all {
		gain := ""
		if r.Order == orders[0] {
			plain = r.MedianUS
		} else {
			gain = fmt.Sprintf("%+.1f%%", 100*(r.MedianUS/plain-1))
		}
		fmt.Fprintf(w, "%-22s %-8s %12d %10.2f %10.2f %10.2f %7.1f%% %9.2f %9.2f %9s %6d\n",
			r.Matrix, r.Order, r.BusiestPort, r.BoundUS/1e3, r.PredictedUS/1e3, r.MedianUS/1e3,
			100*(r.MedianUS/r.PredictedUS-1), r.MinUS/1e3, r.MaxUS/1e3, gain, r.Wrong)
	}
	fmt.Fprintln(w, `
bound:     no schedule is faster from dark planes; a matrix that repeats saves the first reconfiguration of each plane
predicted: the planned time; the model of plain order keeps each map until its largest pair is done, but ranks with
           smaller pairs continue earlier
measured:  median over iterations of the slowest rank's completion; it includes the messages to the leader and, for
           fresh matrices, planning`)
}
