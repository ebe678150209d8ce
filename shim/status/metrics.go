package status

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// sample adds a value of a metric, with names and values of labels by turns.
type sample func(value float64, labels ...string)

// metrics are the metrics of ranks, in the order of their file.
var metrics = []struct {
	name, kind, help string
	of               func(r *Rank, add sample)
}{
	{"lightpath_rank_state", "gauge", "1: the rank's communicator is in this state.",
		func(r *Rank, add sample) { add(1, "state", r.State) }},
	{"lightpath_rank_calls_total", "counter", "Calls of a rank.", func(r *Rank, add sample) {
		for _, call := range slices.Sorted(maps.Keys(r.Counts)) {
			add(float64(r.Counts[call]), "call", call)
		}
	}},
	{"lightpath_rank_call_seconds", "gauge", "Time since the call in progress; 0: there is none.",
		func(r *Rank, add sample) {
			if r.Op != nil {
				add(r.Op.Seconds)
			} else {
				add(0)
			}
		}},
	{"lightpath_rank_tickets_total", "counter",
		"Tickets of operations on circuits: used that came ahead, asked for, or declined that came ahead.",
		func(r *Rank, add sample) {
			if a := r.Ahead; a != nil {
				add(float64(a.Used), "ticket", "used")
				add(float64(a.Asked), "ticket", "asked")
				add(float64(a.Declined), "ticket", "declined")
			}
		}},
	{"lightpath_rank_switching_seconds_total", "counter",
		"Switching between operations: hidden, or exposed to a call that waited.", func(r *Rank, add sample) {
			if a := r.Ahead; a != nil {
				add(a.HiddenSeconds, "switching", "hidden")
				add(a.ExposedSeconds, "switching", "exposed")
			}
		}},
	{"lightpath_rank_operations_total", "counter", "Completed operations of at most size bytes, above a quarter.",
		ofTotals(func(t *Total) float64 { return float64(t.Count) })},
	{"lightpath_rank_operation_bytes_total", "counter", "Bytes of completed operations. Over operation_seconds: algbw.",
		ofTotals(func(t *Total) float64 { return float64(t.Bytes) })},
	{"lightpath_rank_operation_bus_bytes_total", "counter", "Bytes times nccl-tests' factor for busbw.",
		ofTotals(func(t *Total) float64 { return t.BusBytes })},
	{"lightpath_rank_operation_seconds_total", "counter", "Time of completed operations at this rank.",
		ofTotals(func(t *Total) float64 { return t.Seconds })},
}

func ofTotals(value func(*Total) float64) func(*Rank, sample) {
	return func(r *Rank, add sample) {
		for i := range r.Totals {
			t := &r.Totals[i]
			add(value(t), "call", t.Call, "size", strconv.FormatUint(t.Size, 10), "algorithm", t.Algorithm)
		}
	}
}

// Metrics returns the metrics of the ranks that have answered, in the text format of Prometheus.
func Metrics(comms []Comm) []byte {
	var b bytes.Buffer
	for i := range metrics {
		m := &metrics[i]
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for j := range comms {
			c := &comms[j]
			for k := range c.Ranks {
				r := &c.Ranks[k]
				if r.Answer != Answered {
					continue
				}
				m.of(r, func(value float64, labels ...string) {
					own := []string{"communicator", c.ID, "name", c.Name, "rank", strconv.Itoa(r.Rank), "host", r.Host}
					writeSample(&b, m.name, append(own, labels...), value)
				})
			}
		}
	}
	return b.Bytes()
}

// inLabel makes a text the value of a label. One byte that is no UTF-8 makes Prometheus refuse the whole file.
var inLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func writeSample(b *bytes.Buffer, name string, labels []string, value float64) {
	b.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		before := ","
		if i == 0 {
			before = "{"
		}
		fmt.Fprintf(b, `%s%s="%s"`, before, labels[i], inLabel.Replace(strings.ToValidUTF8(labels[i+1], "?")))
	}
	fmt.Fprintf(b, "} %v\n", value)
}
