package netconf

import (
	"slices"
	"strconv"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver/netconf/wire"
)

// get executes get and get-config. It returns the configuration and, if state is set, the state data.
func (st *store) get(op *wire.Element, source string, state bool) (*wire.Element, error) {
	filter := op.Child(wire.BaseNS, "filter")
	if filter != nil {
		if kind := filter.Attr("", "type"); kind != "" && kind != "subtree" {
			return nil, rpcError("operation-not-supported", "", "filter of type "+kind)
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if source == candidate && !st.cfg.Candidate {
		return nil, rpcError("invalid-value", "", "there is no candidate")
	}
	data := wire.New(wire.BaseNS, "data")
	for _, c := range st.containers(source, state) {
		if filter == nil {
			data.Children = appendIf(data.Children, c.make())
			continue
		}
		name := wire.New(wire.OpticalNS, c.name)
		if !slices.ContainsFunc(filter.Children, func(f *wire.Element) bool { return same(f, name) }) {
			continue // the filter does not ask for it
		}
		made := c.make()
		for _, f := range filter.Children {
			if same(f, made) {
				data.Children = appendIf(data.Children, selected(made, f))
				break
			}
		}
	}
	return data, nil
}

func appendIf(list []*wire.Element, e *wire.Element) []*wire.Element {
	if e == nil || len(e.Children) == 0 {
		return list
	}
	return append(list, e)
}

// container is a top-level container, with the function that makes it.
type container struct {
	name string
	make func() *wire.Element
}

func (st *store) containers(source string, state bool) []container {
	all := []container{
		{"cross-connects", func() *wire.Element { return st.crossConnects(source) }},
		{"port-config", func() *wire.Element { return st.portConfig(state) }},
		{"opm-config", func() *wire.Element { return st.detectors(source) }},
	}
	if state {
		all = append(all, container{"product-information", st.product}, container{"opm-power", st.powers})
	}
	return all
}

func (st *store) crossConnects(source string) *wire.Element {
	if source == candidate && st.cand != nil {
		var pairs []wire.Pair
		for _, in := range st.in {
			if out, ok := st.cand.pairs[in]; ok {
				pairs = append(pairs, wire.Pair{Ingress: in, Egress: out})
			}
		}
		return wire.CrossConnects(pairs)
	}
	var pairs []wire.Pair
	for _, row := range st.dev.Table() {
		pairs = append(pairs, wire.Pair{Ingress: st.in[row.In], Egress: st.out[row.Out]})
	}
	return wire.CrossConnects(pairs)
}

func (st *store) portConfig(state bool) *wire.Element {
	e := wire.New(wire.OpticalNS, "port-config")
	st.eachPort(func(p int, side device.Side, id string) {
		row := wire.New(wire.OpticalNS, "port", wire.Leaf(wire.OpticalNS, "port-id", id))
		if state {
			row.Children = append(row.Children, wire.Leaf(wire.OpticalNS, "status", status(st.dev.Status(p, side))))
		}
		e.Children = append(e.Children, row)
	})
	return e
}

// status returns the module's word for a state: whether light would pass the port.
func status(s device.PortState) string {
	switch s {
	case device.Failed:
		return "FAILED"
	case device.Tuning:
		return "DISABLED"
	default:
		return "ENABLED"
	}
}

func (st *store) powers() *wire.Element {
	e := wire.New(wire.OpticalNS, "opm-power")
	st.eachPort(func(p int, side device.Side, id string) {
		if dbm, ok := st.dev.PowerDBm(p, side); ok {
			e.Children = append(e.Children, wire.New(wire.OpticalNS, "port", wire.Leaf(wire.OpticalNS, "port-id", id),
				wire.Leaf(wire.OpticalNS, "power", strconv.FormatFloat(dbm, 'f', 2, 64))))
		}
	})
	return e
}

func (st *store) detectors(source string) *wire.Element {
	averaging := averagingTime(st.dev.Averaging())
	if source == candidate && st.cand != nil {
		averaging = st.cand.averaging
	}
	e := wire.New(wire.OpticalNS, "opm-config")
	st.eachPort(func(p int, side device.Side, id string) {
		if _, ok := st.dev.PowerDBm(p, side); ok && side == device.Egress {
			e.Children = append(e.Children, wire.New(wire.OpticalNS, "port", wire.Leaf(wire.OpticalNS, "port-id", id),
				wire.Leaf(wire.OpticalNS, "averaging-time", strconv.FormatUint(averaging, 10))))
		}
	})
	return e
}

func (st *store) product() *wire.Element {
	info := st.dev.Info()
	return wire.New(wire.OpticalNS, "product-information",
		wire.Leaf(wire.OpticalNS, "manufacturer", info.Vendor), wire.Leaf(wire.OpticalNS, "serial-number", info.Serial),
		wire.Leaf(wire.OpticalNS, "model-name", info.Model), wire.Leaf(wire.OpticalNS, "software-version", info.Software))
}

func (st *store) eachPort(f func(p int, side device.Side, id string)) {
	for _, side := range []device.Side{device.Ingress, device.Egress} {
		for p := range st.dev.Ports() {
			f(p, side, st.dev.Label(p, side))
		}
	}
}

// same reports whether a filter element selects a data element. Without a namespace, it selects elements of all
// namespaces (RFC 6241, section 6.2.1).
func same(f, e *wire.Element) bool {
	return f.Name.Local == e.Name.Local && (f.Name.Space == "" || f.Name.Space == e.Name.Space)
}

// selected returns the part of an element that a subtree filter of the same name selects, nil for none (RFC 6241,
// section 6.2).
func selected(e, f *wire.Element) *wire.Element {
	if len(f.Children) == 0 {
		return e
	}
	kept := &wire.Element{Name: e.Name}
	narrow := false // the filter has more than content matches
	for _, want := range f.Children {
		if len(want.Children) > 0 || want.Text == "" {
			narrow = true
			continue
		}
		at := slices.IndexFunc(e.Children, func(c *wire.Element) bool { return same(want, c) && c.Text == want.Text })
		if at < 0 {
			return nil
		}
		kept.Children = append(kept.Children, e.Children[at])
	}
	if !narrow {
		return e
	}
	for _, c := range e.Children {
		for _, want := range f.Children {
			if !same(want, c) || len(want.Children) == 0 && want.Text != "" {
				continue
			}
			if part := selected(c, want); part != nil {
				kept.Children = append(kept.Children, part)
				break
			}
		}
	}
	if len(kept.Children) == 0 {
		return nil
	}
	return kept
}
