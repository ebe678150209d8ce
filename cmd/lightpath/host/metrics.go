package host

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"lightpath/shim/status"
)

// writeMetrics writes what ranks have done as metrics of Prometheus, for the textfile collector of node_exporter. It
// replaces the file as a whole.
func writeMetrics(path string, r *status.Report) error {
	all := prometheus.NewRegistry()
	all.MustRegister(rankMetrics{r})
	return prometheus.WriteToTextfile(path, all)
}

// rankMetrics are the metrics of ranks that have answered.
type rankMetrics struct{ report *status.Report }

var (
	rankLabels = []string{"communicator", "name", "rank", "host"}

	rankState = prometheus.NewDesc("lightpath_rank_state", "1: the rank's communicator is in this state.",
		append(rankLabels, "state"), nil)
	rankCalls = prometheus.NewDesc("lightpath_rank_calls_total", "Calls of a rank.", append(rankLabels, "call"), nil)
	rankBusy  = prometheus.NewDesc("lightpath_rank_call_seconds", "Time since the call in progress; 0: there is none.",
		rankLabels, nil)
	rankTickets = prometheus.NewDesc("lightpath_rank_tickets_total",
		"Tickets of operations on circuits: used that came ahead, asked for, or declined that came ahead.",
		append(rankLabels, "ticket"), nil)
	rankSwitching = prometheus.NewDesc("lightpath_rank_switching_seconds_total",
		"Switching between operations: hidden, or exposed to a call that waited.", append(rankLabels, "switching"), nil)
)

// Describe implements [prometheus.Collector]. Without descriptions, a collector need not have all of its metrics.
func (rankMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (m rankMetrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.report.Comms {
		for i := range c.Ranks {
			if r := &c.Ranks[i]; r.Answer == status.Answered {
				collectRank(to, r, []string{c.ID, c.Name, strconv.Itoa(r.Rank), r.Host})
			}
		}
	}
}

func collectRank(to chan<- prometheus.Metric, r *status.Rank, labels []string) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, more ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, append(labels[:len(labels):len(labels)], more...)...)
	}
	send(rankState, prometheus.GaugeValue, 1, r.State)
	for call, n := range r.Counts {
		send(rankCalls, prometheus.CounterValue, float64(n), call)
	}
	busy := 0.0
	if r.Op != nil {
		busy = r.Op.Seconds
	}
	send(rankBusy, prometheus.GaugeValue, busy)
	if a := r.Ahead; a != nil {
		send(rankTickets, prometheus.CounterValue, float64(a.Used), "used")
		send(rankTickets, prometheus.CounterValue, float64(a.Asked), "asked")
		send(rankTickets, prometheus.CounterValue, float64(a.Declined), "declined")
		send(rankSwitching, prometheus.CounterValue, a.HiddenSeconds, "hidden")
		send(rankSwitching, prometheus.CounterValue, a.ExposedSeconds, "exposed")
	}
}
