package gnmi

import (
	"slices"
	"strconv"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/plans/circuit"
)

type pair = circuit.Pair

// invalid is a circuit that is configured and not in the hardware.
type invalid struct{ in, out, reason string }

func (s *server) label() {
	s.in, s.out = make(map[string]int), make(map[string]int)
	for p := range s.d.Ports() {
		s.in[s.words.Normal(s.d.Label(p, device.Ingress))] = p
		s.out[s.words.Normal(s.d.Label(p, device.Egress))] = p
	}
}

// vars returns the variables of a circuit of the hardware. The caller holds the lock.
func (s *server) vars(c device.Connection) map[string]string {
	p := pair{From: c.In, To: c.Out}
	return s.words.Vars(s.names[p], s.d.Label(c.In, device.Ingress), s.d.Label(c.Out, device.Egress))
}

// config returns the leaves of the configuration. The caller holds the lock.
func (s *server) config(rows []device.Connection) []dialect.Leaf {
	s.forget(rows)
	var all []dialect.Leaf
	for _, c := range rows {
		if !c.Ghost {
			all = append(all, s.words.Config.EntryLeaves(s.vars(c))...)
		}
	}
	for id, c := range s.invalid {
		all = append(all, s.words.Config.EntryLeaves(s.words.Vars(id, c.in, c.out))...)
	}
	return all
}

// forget drops names of circuits that another client has removed.
func (s *server) forget(rows []device.Connection) {
	made := make(map[pair]bool, len(rows))
	for _, c := range rows {
		made[pair{From: c.In, To: c.Out}] = !c.Ghost
	}
	for p := range s.names {
		if !made[p] {
			delete(s.names, p)
		}
	}
	if s.rebooted.Swap(false) {
		clear(s.invalid)
	}
}

// leaves returns the whole tree.
func (s *server) leaves() []dialect.Leaf {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.d.Table()
	all := s.config(rows)
	ends := make(map[end]port)
	for _, c := range rows {
		v := s.vars(c)
		ends[end{device.Ingress, c.In}] = ends[end{device.Ingress, c.In}].with(c, v["out"])
		ends[end{device.Egress, c.Out}] = ends[end{device.Egress, c.Out}].with(c, v["in"])
		word := s.words.Status.Words[state(c.State)]
		v["status"], v["in.status"], v["out.status"] = word, word, word
		all = append(all, s.words.Status.EntryLeaves(v)...)
	}
	if word, ok := s.words.Status.Words[dialect.Invalid]; ok {
		for id, c := range s.invalid {
			v := s.words.Vars(id, c.in, c.out)
			v["status"], v["reason"] = word, c.reason
			all = append(all, s.words.Status.EntryLeaves(v)...)
		}
	}
	for _, side := range []device.Side{device.Ingress, device.Egress} {
		for p := range s.d.Ports() {
			all = append(all, s.port(end{side, p}, ends[end{side, p}])...)
		}
	}
	i := s.d.Info()
	return append(all, s.words.System.EntryLeaves(map[string]string{"vendor": i.Vendor, "model": i.Model,
		"serial": i.Serial, "software": i.Software})...)
}

// end is a port of a side.
type end struct {
	side device.Side
	port int
}

// port is the state of a port in the table.
type port struct {
	peer  string
	state device.PortState
}

// with adds a row of the table. A ghost hides the egress port of a circuit, not its state.
func (p port) with(c device.Connection, peer string) port {
	p.peer = peer
	if !c.Ghost {
		p.state = c.State
	}
	return p
}

func (s *server) port(e end, p port) []dialect.Leaf {
	v := s.words.PortVars(s.d.Label(e.port, e.side), p.peer)
	v["status"] = s.words.Ports.Words[state(p.state)]
	if dbm, ok := s.d.PowerDBm(e.port, e.side); ok {
		name := "input"
		if e.side == device.Egress {
			name = "output"
		}
		v[name] = strconv.FormatFloat(dbm, 'f', 2, 64)
	}
	return s.words.Ports.EntryLeaves(v)
}

func state(s device.PortState) dialect.State {
	switch s {
	case device.Blocked:
		return dialect.Blocked
	case device.Tuning:
		return dialect.Pending
	case device.Tuned:
		return dialect.Up
	default:
		return dialect.Failed
	}
}

// ofType returns the leaves that belong to a type of Get.
func ofType(leaves []dialect.Leaf, t gpb.GetRequest_DataType) []dialect.Leaf {
	if t == gpb.GetRequest_ALL {
		return leaves
	}
	return slices.DeleteFunc(slices.Clone(leaves), func(l dialect.Leaf) bool {
		config := slices.ContainsFunc(l.Elems, func(e *gpb.PathElem) bool {
			return e.GetName() == "config" || e.GetName() == "CONFIG_DB"
		})
		return config != (t == gpb.GetRequest_CONFIG)
	})
}

// updates returns leaves as updates with native values.
func updates(leaves []dialect.Leaf, origin string) []*gpb.Update {
	all := make([]*gpb.Update, len(leaves))
	for i, l := range leaves {
		all[i] = &gpb.Update{Path: &gpb.Path{Origin: origin, Elem: l.Elems}, Val: native(l)}
	}
	return all
}

func native(l dialect.Leaf) *gpb.TypedValue {
	if l.Number {
		if n, err := strconv.ParseUint(l.Value, 10, 64); err == nil {
			return &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: n}}
		}
		if x, err := strconv.ParseFloat(l.Value, 64); err == nil {
			return &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: x}}
		}
	}
	return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: l.Value}}
}
