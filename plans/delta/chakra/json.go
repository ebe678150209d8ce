package chakra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"lightpath/internal/decode"
)

// DecodeJSON reads either JSON form. Errors wrap [ErrTrace] and name the node, counted from 0, or
// the byte.
func DecodeJSON(data []byte) (*Trace, error) {
	var whole struct {
		Graph []jsonFlat `json:"workload_graph"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	var first json.RawMessage
	if err := d.Decode(&first); err != nil {
		return nil, jsonError(d, err)
	}
	t := &Trace{}
	if err := decode.JSON(first, &whole); err != nil {
		return nil, fmt.Errorf("%w: workload_graph: %w", ErrTrace, err)
	}
	if whole.Graph != nil {
		for _, n := range whole.Graph {
			t.Nodes = append(t.Nodes, n.node())
		}
		return t, t.check()
	}
	var metadata struct {
		Version string `json:"version"`
	}
	if err := decode.JSON(first, &metadata); err != nil {
		return nil, fmt.Errorf("%w: metadata: %w", ErrTrace, err)
	}
	t.Version = metadata.Version
	for {
		var m jsonMessage
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, jsonError(d, err)
		}
		n, err := m.node()
		if err != nil {
			return nil, fmt.Errorf("%w: node %d, before byte %d: %w", ErrTrace, len(t.Nodes), d.InputOffset(), err)
		}
		t.Nodes = append(t.Nodes, n)
	}
	if len(t.Nodes) == 0 {
		return nil, fmt.Errorf("%w: no nodes", ErrTrace)
	}
	return t, t.check()
}

func jsonError(d *json.Decoder, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: cut short at byte %d", ErrTrace, d.InputOffset())
	}
	return fmt.Errorf("%w: at byte %d: %w", ErrTrace, d.InputOffset(), decode.Explain(nil, err))
}

// jsonFlat is a node of a workload_graph.
type jsonFlat struct {
	ID         uint64   `json:"Id"`
	Name       string   `json:"Name"`
	Type       int      `json:"NodeType"`
	Runtime    float64  `json:"runtime"`
	DataDeps   []uint64 `json:"data_deps"`
	CtrlDeps   []uint64 `json:"ctrl_deps"`
	Collective int      `json:"comm_type"`
	Bytes      float64  `json:"comm_size"`
	Src        int      `json:"comm_src"`
	Dst        int      `json:"comm_dst"`
	Tag        int64    `json:"comm_tag"`
	Group      string   `json:"pg_name"`
}

func (n *jsonFlat) node() Node {
	return Node{ID: n.ID, Name: n.Name, Type: Type(n.Type), Deps: slices.Concat(n.DataDeps),
		Control: slices.Concat(n.CtrlDeps), DurationUS: n.Runtime,
		Collective: Collective(n.Collective), Bytes: n.Bytes, Src: n.Src, Dst: n.Dst, Tag: n.Tag, Group: n.Group}
}

// jsonMessage is a Node in protobuf's JSON: 64-bit numbers are texts, names have either style.
type jsonMessage struct {
	ID        number   `json:"id"`
	Name      string   `json:"name"`
	Type      any      `json:"type"`
	CtrlDeps  []number `json:"ctrlDeps"`
	DataDeps  []number `json:"dataDeps"`
	CtrlDeps2 []number `json:"ctrl_deps"`
	DataDeps2 []number `json:"data_deps"`
	Duration  number   `json:"durationMicros"`
	Duration2 number   `json:"duration_micros"`
	Attr      []map[string]any
}

// number is a JSON number, also inside a string.
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	s := string(bytes.Trim(text, `"`))
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return fmt.Errorf("%q is no number", s)
	}
	*n = number(v)
	return nil
}

func (m *jsonMessage) node() (Node, error) {
	id := func(n number) (uint64, error) {
		if !(n >= 0 && n < maxNumber) {
			return 0, fmt.Errorf("id: %v is negative or too large", float64(n))
		}
		return uint64(n), nil
	}
	n := Node{Name: m.Name, DurationUS: float64(m.Duration + m.Duration2)}
	var err error
	if n.ID, err = id(m.ID); err != nil {
		return n, err
	}
	for _, list := range []struct {
		to   *[]uint64
		from []number
	}{{&n.Deps, slices.Concat(m.DataDeps, m.DataDeps2)}, {&n.Control, slices.Concat(m.CtrlDeps, m.CtrlDeps2)}} {
		for _, d := range list.from {
			dep, err := id(d)
			if err != nil {
				return n, err
			}
			*list.to = append(*list.to, dep)
		}
	}
	switch v := m.Type.(type) {
	case string:
		n.Type = Type(slices.Index(typeNames, v))
	case float64:
		n.Type = Type(clampInt(v))
	}
	for _, a := range m.Attr {
		n.attribute(jsonAttribute(a))
	}
	return n, nil
}

// jsonAttribute reads {"name": ..., "int64Val": "5"} and the like.
func jsonAttribute(fields map[string]any) attribute {
	var a attribute
	a.name, _ = fields["name"].(string)
	for key, v := range fields {
		if key == "name" || key == "docString" || key == "doc_string" {
			continue
		}
		switch v := v.(type) {
		case float64:
			a.number = v
		case string:
			a.text = v
			if number, err := strconv.ParseFloat(v, 64); err == nil {
				a.number = number
			}
		}
	}
	return a
}
