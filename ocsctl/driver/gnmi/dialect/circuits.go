package dialect

import (
	"math"
	"strconv"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// Circuit is a switch's report on one circuit, in the labels of Normal.
type Circuit struct {
	In, Out    string
	Configured bool            // it is asked for
	Reported   bool            // the switch has it, or is making or removing it
	State      State           // Unknown if the switch does not report it
	Word       string          // for State, in the switch's own words
	Reason     string          // the switch's, for the state
	Path       []*gpb.PathElem // of the configuration's entry, nil unless Configured
}

// Port is a switch's report on one port.
type Port struct {
	State         State
	Word          string  // for State, in the switch's own words
	Peer          string  // in the form of Normal, "" if none is reported
	Input, Output float64 // power in dBm, NaN if it is not measured
}

// Circuits returns the configured circuits in order of path, then circuits that are only reported.
// If the dialect reports ports instead of circuits, a circuit has the states of its ports.
func (s *Store) Circuits() []Circuit {
	var all []Circuit
	at := make(map[string]int) // by id
	for _, r := range s.Records(&s.d.Config) {
		in, out := s.d.Normal(port(r.Values, "in")), s.d.Normal(port(r.Values, "out"))
		at[r.Values["id"]] = len(all)
		all = append(all, Circuit{In: in, Out: out, Configured: true, Path: r.Elems})
	}
	if len(s.d.Status.Entry) == 0 {
		return s.fromPorts(all)
	}
	for _, r := range s.Records(&s.d.Status) {
		i, ok := at[r.Values["id"]]
		if !ok {
			i = len(all)
			in, out, _ := strings.Cut(r.Values["id"], idSeparator)
			all = append(all, Circuit{In: in, Out: out})
		}
		c := &all[i]
		if in := port(r.Values, "in"); in != "" {
			c.In = in
		}
		if out := port(r.Values, "out"); out != "" {
			c.Out = out
		}
		c.State, c.Word = s.d.Status.state(r.Values)
		c.Reported, c.Reason = c.State != Invalid, r.Values["reason"]
	}
	return all
}

// fromPorts gives configured circuits the state of their ports, and adds circuits that only ports report.
func (s *Store) fromPorts(all []Circuit) []Circuit {
	ports := s.Ports()
	seen := make(map[[2]string]bool, len(all))
	for i := range all {
		c := &all[i]
		seen[[2]string{c.In, c.Out}], seen[[2]string{c.Out, c.In}] = true, true
		in, out := ports[c.In], ports[c.Out]
		c.State, c.Word = worst(in.State, in.Word, out.State, out.Word)
		c.Reported = in.State != Blocked && in.State != Unknown && (in.Peer == "" || in.Peer == c.Out)
	}
	for _, r := range s.Records(&s.d.Ports) {
		name := s.d.Normal(port(r.Values, "port"))
		if p := ports[name]; p.Peer != "" && !seen[[2]string{name, p.Peer}] {
			all = append(all, Circuit{In: name, Out: p.Peer, Reported: true, State: p.State, Word: p.Word})
		}
	}
	return all
}

// state reads the status of a record: its own, or the worse one of its two ends.
func (t *Table) state(v map[string]string) (State, string) {
	if word, ok := v["status"]; ok {
		return t.meaning(word), word
	}
	return worst(t.meaning(v["in.status"]), v["in.status"], t.meaning(v["out.status"]), v["out.status"])
}

func worst(a State, aWord string, b State, bWord string) (State, string) {
	if a < b {
		a, aWord, b = b, bWord, a
	}
	if a == Up && b == Unknown {
		return Unknown, aWord
	}
	return a, aWord
}

// Ports returns the states of ports, by label.
func (s *Store) Ports() map[string]Port {
	all := make(map[string]Port)
	for _, r := range s.Records(&s.d.Ports) {
		word := r.Values["status"]
		p := Port{State: s.d.Ports.meaning(word), Word: word, Input: power(r.Values["input"]),
			Output: power(r.Values["output"])}
		if peer := port(r.Values, "peer"); peer != "" {
			p.Peer = s.d.Normal(peer)
		}
		all[s.d.Normal(port(r.Values, "port"))] = p
	}
	return all
}

func power(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}
