package netconf

import (
	"fmt"
	"slices"
	"strconv"

	"lightpath/ocsctl/driver/netconf/wire"
)

// merge returns configuration c after an edit-config (RFC 6241, section 7.2). Errors are rpc-errors.
func (st *store) merge(c config, op *wire.Element) (config, error) {
	edit := op.Child(wire.BaseNS, "config")
	if edit == nil {
		edit = op.Child("", "config") // ncclient's users omit the namespace, and switches accept that
	}
	if edit == nil {
		return c, rpcError("missing-element", "", "config")
	}
	inherited := "merge"
	switch d := op.Value(wire.BaseNS, "default-operation"); d {
	case "", "merge", "none":
		if d != "" {
			inherited = d
		}
	case "replace":
		c = config{pairs: make(map[uint32]uint32), averaging: defaultAveraging}
	default:
		return c, rpcError("invalid-value", "", "default-operation")
	}
	for _, e := range edit.Children {
		var err error
		switch {
		case e.Name.Space != wire.OpticalNS:
			err = unknown(e)
		case e.Name.Local == "cross-connects":
			err = st.mergePairs(&c, e, inherited)
		case e.Name.Local == "opm-config":
			err = st.mergeDetectors(&c, e, inherited)
		default:
			err = unknown(e)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// operation returns the operation on an element. The default is that of the surrounding element.
func operation(e *wire.Element, around string) (string, error) {
	op := e.Attr(wire.BaseNS, "operation")
	switch {
	case op == "":
		return around, nil
	case slices.Contains([]string{"merge", "replace", "create", "delete", "remove"}, op):
		return op, nil
	}
	return "", rpcError("bad-attribute", "", "operation")
}

func (st *store) mergePairs(c *config, e *wire.Element, around string) error {
	op, err := operation(e, around)
	if err != nil {
		return err
	}
	switch have := len(c.pairs) > 0; {
	case op == "delete" && !have:
		return rpcError("data-missing", "/cross-connects", "there are none")
	case op == "create" && have:
		return rpcError("data-exists", "/cross-connects", "there are some")
	case op == "delete" || op == "remove":
		clear(c.pairs)
		return nil
	case op == "replace":
		clear(c.pairs)
	}
	for _, row := range e.Children {
		if row.Name.Space != wire.OpticalNS || row.Name.Local != "pair" {
			return unknown(row)
		}
		if err := st.mergePair(c, row, op); err != nil {
			return err
		}
	}
	return nil
}

func (st *store) mergePair(c *config, row *wire.Element, around string) error {
	op, err := operation(row, around)
	if err != nil {
		return err
	}
	in, err := wire.PortID(row.Value(wire.OpticalNS, "ingress"))
	if _, ok := st.fromID[in]; err != nil || !ok {
		return rpcError("invalid-value", "/cross-connects/pair/ingress",
			fmt.Sprintf("no ingress port %q", row.Value(wire.OpticalNS, "ingress")))
	}
	path := fmt.Sprintf("/cross-connects/pair[ingress='%d']", in)
	egress := row.Child(wire.OpticalNS, "egress")
	_, have := c.pairs[in]
	switch {
	case op == "create" && have:
		return rpcError("data-exists", path, "the ingress has a circuit")
	case (op == "delete" || op == "none") && !have:
		return rpcError("data-missing", path, "the ingress has no circuit")
	case op == "delete" || op == "remove":
		delete(c.pairs, in)
		return nil
	case op == "none", op == "merge" && have && egress == nil:
		return nil
	case egress == nil:
		return rpcError("missing-element", path, "egress")
	}
	out, err := wire.PortID(egress.Text)
	if _, ok := st.toID[out]; err != nil || !ok {
		return rpcError("invalid-value", path+"/egress", fmt.Sprintf("no egress port %q", egress.Text))
	}
	c.pairs[in] = out
	return nil
}

// defaultAveraging is the module's default of averaging-time.
const defaultAveraging = 4

// mergeDetectors edits /opm-config. The device has one window for all its detectors.
func (st *store) mergeDetectors(c *config, e *wire.Element, around string) error {
	op, err := operation(e, around)
	if err != nil {
		return err
	}
	if op == "delete" || op == "remove" {
		c.averaging = defaultAveraging
		return nil
	}
	for _, row := range e.Children {
		if row.Name.Space != wire.OpticalNS || row.Name.Local != "port" {
			return unknown(row)
		}
		id, err := wire.PortID(row.Value(wire.OpticalNS, "port-id"))
		if _, ok := st.toID[id]; err != nil || !ok {
			return rpcError("invalid-value", "/opm-config/port/port-id", "no port with a detector")
		}
		text := row.Value(wire.OpticalNS, "averaging-time")
		if text == "" {
			continue
		}
		v, err := strconv.ParseUint(text, 10, 32)
		if err != nil || v < 1 || v > 8 {
			return rpcError("invalid-value", "/opm-config/port/averaging-time", "want 1..8")
		}
		c.averaging = v
	}
	return nil
}

func unknown(e *wire.Element) error {
	kind := "unknown-element"
	if e.Name.Space != wire.OpticalNS {
		kind = "unknown-namespace"
	}
	return rpcError(kind, "", e.Name.Local)
}
