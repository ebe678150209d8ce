package web

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"lightpath/ocsctl/controller"
)

// prefix begins the names of all metrics of a controller.
const prefix = "lightpath_ocs_"

// seconds holds the bounds of all durations: from a switch in microseconds to one in tens of seconds.
var seconds = prometheus.ExponentialBuckets(1e-6, 4, 14)

// metrics counts events as they happen. States are read from a snapshot at each request.
type metrics struct {
	took, waited *prometheus.HistogramVec
	lease        prometheus.Histogram
	journal      prometheus.Histogram
	journalFails prometheus.Counter
	failures     *prometheus.CounterVec
	events       *prometheus.CounterVec
	cut          prometheus.Counter
}

func newMetrics() *metrics {
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: seconds}
	}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: prefix + name, Help: help}
	}
	return &metrics{
		took: prometheus.NewHistogramVec(histogram("switch_seconds",
			"Time that the switch took for a reconfiguration."), []string{"plane"}),
		waited: prometheus.NewHistogramVec(histogram("switch_wait_seconds",
			"Time from the first post for a reconfiguration to the last."), []string{"plane"}),
		lease: prometheus.NewHistogram(histogram("lease_wait_seconds",
			"Time that a communicator waited for its planes.")),
		journal:      prometheus.NewHistogram(histogram("journal_seconds", "Time until an intent was durable.")),
		journalFails: prometheus.NewCounter(counter("journal_errors_total", "Intents that could not be made durable.")),
		failures: prometheus.NewCounterVec(counter("plane_failures_total",
			"Times that a plane went out of service, by cause, as seen by this process."), []string{"plane", "cause"}),
		events: prometheus.NewCounterVec(counter("events_total",
			"Entries of the history, by kind, as seen by this process."), []string{"kind"}),
		cut: prometheus.NewCounter(counter("page_cut_total",
			"Readers of the stream of events that were too slow and were cut.")),
	}
}

// register fills a registry with the metrics of s.
func (m *metrics) register(r *prometheus.Registry, s *Server) error {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "build_info", Help: "1, labelled with the version of the controller.",
		ConstLabels: prometheus.Labels{"version": label(s.o.Version), "goversion": runtime.Version()},
	})
	build.Set(1)
	readers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "page_readers",
		Help: "Clients that follow the stream of events."},
		func() float64 { return float64(s.feed.count()) })
	var errs []error
	for _, c := range []prometheus.Collector{
		m.took, m.waited, m.lease, m.journal, m.journalFails, m.failures, m.events, m.cut, build, readers, stateCollector{s},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// observe counts an event. The name of its plane may be unknown.
func (m *metrics) observe(e *controller.Event, name string) {
	m.events.WithLabelValues(label(string(e.Kind))).Inc()
	plane := planeLabel(e.Plane, name)
	switch e.Kind {
	case controller.Switched:
		m.took.WithLabelValues(plane).Observe(e.Took.Seconds())
		m.waited.WithLabelValues(plane).Observe(e.Waited.Seconds())
	case controller.Failed:
		m.failures.WithLabelValues(plane, string(e.Cause)).Inc()
	case controller.Granted:
		m.lease.Observe(e.Waited.Seconds())
	}
}

// ObserveJournal records the time that the journal took to make an intent durable, or its error.
func (s *Server) ObserveJournal(took time.Duration, err error) {
	if err != nil {
		s.metrics.journalFails.Inc()
		return
	}
	s.metrics.journal.Observe(took.Seconds())
}

// label makes a text valid as a label of a metric.
func label(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func planeLabel(j int, name string) string {
	if name == "" {
		return fmt.Sprint(j)
	}
	return label(name)
}

// stateCollector reads the state of the core at each request for metrics.
type stateCollector struct{ s *Server }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

// Metrics of a snapshot.
var (
	descLeader   = desc("leader", "1 if this controller is in charge of the planes.")
	descResponds = desc("responds", "1 if the core of this controller answers, or stands by.")
	descToken    = desc("fencing_token", "Fencing token of this controller; rises with every takeover.")
	descPorts    = desc("ports", "Ports of the fabric.")
	descAttached = desc("ports_attached", "Ports that a rank is attached to.")
	descHeld     = desc("leases_held", "Communicators that have planes.")
	descQueue    = desc("lease_queue_length", "Communicators that wait for planes.")
	descOldest   = desc("lease_oldest_wait_seconds", "How long the first in the queue has waited.")
	descUp       = desc("plane_up", "1 if the plane is in service.", "plane")
	descState    = desc("plane_state", "1 for the state that the plane is in.", "plane", "state")
	descDown     = desc("plane_down", "1 for the cause for which the plane is out of service.", "plane", "cause")
	descEpoch    = desc("plane_epoch", "Epoch of the plane: rises with every reconfiguration.", "plane")
	descSwitches = desc("plane_switches_total", "Reconfigurations of the plane.", "plane")
	descFailed   = desc("plane_outages_total",
		"Times that the plane went out of service, as the core counts them.", "plane")
	descPosted    = desc("plane_ports_posted", "Ports that have posted for the next reconfiguration.", "plane")
	descMissing   = desc("plane_ports_missing", "Ports that the next reconfiguration waits for.", "plane")
	descPosts     = desc("plane_posts_total", "Posts of ranks.", "plane")
	descRefused   = desc("plane_posts_refused_total", "Posts for an epoch that was past.", "plane")
	descPower     = desc("port_power_dbm", "Power that the port receives over its circuit.", "plane", "port")
	descBaseline  = desc("port_power_baseline_dbm", "Power against which that of the port is compared.", "plane", "port")
	descDim       = desc("ports_dim", "Ports that receive less power than their baseline by their drop.", "plane")
	descOut       = desc("ports_out", "Ports out of service while their plane serves others.", "plane")
	descSwitchUp  = desc("switch_up", "1 if the switch answers and is well.", "switch", "driver")
	planeStates   = []controller.PlaneState{controller.Resident, controller.Waiting, controller.Moving, controller.Down}
	snapshotDescs = []*prometheus.Desc{
		descLeader, descResponds, descToken, descPorts, descAttached, descHeld, descQueue, descOldest, descUp, descState,
		descDown, descEpoch,
		descSwitches, descFailed, descPosted, descMissing, descPosts, descRefused, descSwitchUp,
		descPower, descBaseline, descDim, descOut,
	}
)

// Describe implements [prometheus.Collector].
func (c stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range snapshotDescs {
		out <- d
	}
}

// samples receives the metrics of a collection.
type samples chan<- prometheus.Metric

func (out samples) gauge(d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (out samples) count(d *prometheus.Desc, v uint64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// Collect implements [prometheus.Collector].
func (c stateCollector) Collect(to chan<- prometheus.Metric) {
	st, out := c.s.status(context.Background()), samples(to)
	out.gauge(descLeader, one(st.Leader))
	out.gauge(descResponds, one(st.Problem == ""))
	seen := map[string]bool{}
	for _, sw := range st.Switches {
		if name := label(sw.Name); !seen[name] {
			seen[name] = true
			out.gauge(descSwitchUp, one(sw.Error == ""), name, label(sw.Driver))
		}
	}
	if !st.Leader {
		return
	}
	out.gauge(descToken, float64(st.Token))
	out.ports(&st)
	core, _ := c.s.o.Controller()
	clear(seen)
	for j := range st.Planes {
		name := planeLabel(j, st.Planes[j].Name)
		if seen[name] {
			name = fmt.Sprintf("%s (%d)", name, j) // a label names one plane
		}
		seen[name] = true
		out.plane(&st.Planes[j], name)
		if st.Planes[j].State == controller.Down {
			out.gauge(descDown, 1, name, string(st.Views[j].Cause))
		}
		ports, _ := c.s.readPorts(context.Background(), core, j) // descResponds shows that the core does not answer
		for r := range ports {
			if s := &ports[r]; s.DBm != nil {
				out.gauge(descPower, *s.DBm, name, strconv.Itoa(r))
			}
			if s := &ports[r]; s.Baseline != nil {
				out.gauge(descBaseline, *s.Baseline, name, strconv.Itoa(r))
			}
		}
	}
}

// ports sends how many ports there are, and how they use the planes.
func (out samples) ports(st *Status) {
	out.gauge(descPorts, float64(len(st.Ports)))
	attached, held := 0, 0
	for i := range st.Ports {
		if st.Ports[i].Attached {
			attached++
		}
	}
	oldest := 0.0
	for i := range st.Uses {
		if st.Uses[i].Granted {
			held++
		} else {
			oldest = max(oldest, st.Time.Sub(st.Uses[i].Since).Seconds())
		}
	}
	out.gauge(descAttached, float64(attached))
	out.gauge(descHeld, float64(held))
	out.gauge(descQueue, float64(len(st.Queue)))
	out.gauge(descOldest, oldest)
}

// plane sends the state and the counters of a plane.
func (out samples) plane(p *controller.PlaneSnapshot, name string) {
	out.gauge(descUp, one(p.State != controller.Down), name)
	for _, state := range planeStates {
		out.gauge(descState, one(p.State == state), name, string(state))
	}
	out.gauge(descEpoch, float64(p.Epoch), name)
	out.count(descSwitches, p.Switches, name)
	out.count(descFailed, p.Failures, name)
	out.count(descPosts, p.Posts, name)
	out.count(descRefused, p.Refused, name)
	out.gauge(descPosted, float64(len(p.Posted)), name)
	out.gauge(descMissing, float64(len(p.Missing)), name)
	out.gauge(descDim, float64(len(p.Dim)), name)
	out.gauge(descOut, float64(len(p.Out)), name)
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
