package wire

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"

	"lightpath/internal/brief"
)

// Pair is one row of /cross-connects: light that enters at Ingress leaves at Egress.
type Pair struct{ Ingress, Egress uint32 }

// MaxPort is the highest port that the module allows.
const MaxPort = 65535

// CrossConnects returns /cross-connects with a row for each pair.
func CrossConnects(pairs []Pair) *Element {
	e := New(OpticalNS, "cross-connects")
	for _, p := range pairs {
		e.Children = append(e.Children, PairElement(p, ""))
	}
	return e
}

// PairElement returns a row. An Egress of 0 is left out, as a deletion may.
func PairElement(p Pair, operation string) *Element {
	row := New(OpticalNS, "pair", Leaf(OpticalNS, "ingress", strconv.FormatUint(uint64(p.Ingress), 10)))
	if p.Egress != 0 {
		row.Children = append(row.Children, Leaf(OpticalNS, "egress", strconv.FormatUint(uint64(p.Egress), 10)))
	}
	row.operation(operation)
	return row
}

// operation marks e with an edit operation; "" marks nothing.
func (e *Element) operation(op string) {
	if op != "" {
		e.Attrs = append(e.Attrs, xml.Attr{Name: xml.Name{Space: BaseNS, Local: "operation"}, Value: op})
	}
}

// Pairs reads the rows of /cross-connects from data, in order. It does not check whether rows share a port.
func Pairs(data *Element) ([]Pair, error) {
	xc := data.Child(OpticalNS, "cross-connects")
	if xc == nil {
		return nil, nil
	}
	pairs := make([]Pair, 0, len(xc.Children))
	for _, row := range xc.Children {
		if row.Name.Space != OpticalNS || row.Name.Local != "pair" {
			continue
		}
		in, err := PortID(row.Value(OpticalNS, "ingress"))
		if err != nil {
			return nil, fmt.Errorf("cross-connects: ingress: %w", err)
		}
		out, err := PortID(row.Value(OpticalNS, "egress"))
		if err != nil {
			return nil, fmt.Errorf("cross-connects: pair %d: egress: %w", in, err)
		}
		pairs = append(pairs, Pair{in, out})
	}
	return pairs, nil
}

// PortID reads a port number, 1..65535.
func PortID(s string) (uint32, error) {
	v, err := strconv.ParseUint(s, 10, 32)
	if err != nil || v < 1 || v > MaxPort {
		return 0, fmt.Errorf("%w: port %q is not within 1..%d", ErrMalformed, brief.Line(s), MaxPort)
	}
	return uint32(v), nil
}

// PortStates reads /port-config/port/status by port.
func PortStates(data *Element) (map[uint32]string, error) {
	states := make(map[uint32]string)
	err := eachPort(data, "port-config", func(id uint32, row *Element) error {
		if s := row.Value(OpticalNS, "status"); s != "" {
			states[id] = brief.Line(s)
		}
		return nil
	})
	return states, err
}

// Powers reads /opm-power/port/power in dBm by port.
func Powers(data *Element) (map[uint32]float64, error) {
	powers := make(map[uint32]float64)
	err := eachPort(data, "opm-power", func(id uint32, row *Element) error {
		s := row.Value(OpticalNS, "power")
		if s == "" {
			return nil
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%w: opm-power: port %d: power %q", ErrMalformed, id, brief.Line(s))
		}
		powers[id] = v
		return nil
	})
	return powers, err
}

func eachPort(data *Element, container string, visit func(id uint32, row *Element) error) error {
	c := data.Child(OpticalNS, container)
	if c == nil {
		return nil
	}
	for _, row := range c.Children {
		if row.Name.Space != OpticalNS || row.Name.Local != "port" {
			continue
		}
		id, err := PortID(row.Value(OpticalNS, "port-id"))
		if err != nil {
			return fmt.Errorf("%s: %w", container, err)
		}
		if err := visit(id, row); err != nil {
			return err
		}
	}
	return nil
}
