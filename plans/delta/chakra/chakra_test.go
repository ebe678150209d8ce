package chakra

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"lightpath/internal/require"
	"lightpath/plans/delta/dag"
)

// encode is the protobuf form of a trace, written field by field beside the decoder.
func encode(t *Trace) []byte {
	field := func(b []byte, number protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
	}
	text := func(b []byte, number protowire.Number, v string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v)
	}
	out := protowire.AppendBytes(nil, text(nil, 1, t.Version))
	for _, n := range t.Nodes {
		b := text(field(nil, 1, n.ID), 2, n.Name)
		b = field(b, 3, uint64(n.Type))
		var packed []byte
		for i, d := range n.Deps {
			if i == 0 { // one by one, and the others packed: both are allowed
				b = field(b, 5, d)
				continue
			}
			packed = protowire.AppendVarint(packed, d)
		}
		if packed != nil {
			b = text(b, 5, string(packed))
		}
		for _, d := range n.Control {
			b = field(b, 4, d)
		}
		b = field(b, 7, uint64(n.DurationUS))
		for _, a := range []struct {
			name   string
			number protowire.Number
			v      int64
		}{{"comm_type", 9, int64(n.Collective)}, {"comm_size", 9, int64(n.Bytes)}, {"comm_src", 7, int64(n.Src)},
			{"comm_dst", 7, int64(n.Dst)}, {"comm_tag", 7, n.Tag}} {
			b = text(b, 10, string(field(text(nil, 1, a.name), a.number, uint64(a.v))))
		}
		if n.Group != "" {
			b = text(b, 10, string(text(text(nil, 1, "pg_name"), 29, n.Group)))
		}
		out = protowire.AppendBytes(out, b)
	}
	return out
}

// pair is two ranks: 0 computes and sends to 1, which computes; then both reduce.
func pair() []*Trace {
	return []*Trace{
		{Version: "0.0.4", Nodes: []Node{
			{ID: 1, Name: "forward", Type: Compute, DurationUS: 100},
			{ID: 2, Name: "send", Type: Send, Control: []uint64{1}, Bytes: 5e6, Src: 0, Dst: 1, Tag: 7},
			{ID: 5, Name: "grad", Type: Together, Deps: []uint64{2}, Control: []uint64{1}, Bytes: 8e6, Collective: AllReduce,
				Group: "dp"},
		}},
		{Version: "0.0.4", Nodes: []Node{
			{ID: 4, Name: "recv", Type: Receive, Bytes: 5e6, Src: 0, Dst: 1, Tag: 7},
			{ID: 9, Name: "forward", Type: Compute, Deps: []uint64{4}, DurationUS: 50},
			{ID: 11, Name: "grad", Type: Together, Control: []uint64{9}, Bytes: 8e6, Collective: AllReduce, Group: "dp"},
		}},
	}
}

// spread makes four ranks of pair's two, in two pods: ranks 1 and 3 compute alone.
func spread() []*Trace {
	p := pair()
	for _, n := range []*Node{&p[0].Nodes[1], &p[1].Nodes[0]} {
		n.Dst = 2
	}
	alone := &Trace{Nodes: []Node{{ID: 1, Type: Compute, DurationUS: 1}}}
	return []*Trace{p[0], alone, p[1], alone}
}

var options = Options{Name: "t", GPUsPerPod: 2, Gbps: 400, ScaleUpGBs: 100}

func TestDecode(t *testing.T) {
	for r, want := range pair() {
		got, err := Decode(encode(want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("rank %d: %+v, %v\nwant %+v", r, got, err, want)
		}
	}
}

// TestCutShort: no beginning of a trace but that of whole messages is taken, and those lack
// what others wait for or are traces themselves.
func TestCutShort(t *testing.T) {
	whole := encode(pair()[0])
	taken := 0
	for n := range len(whole) {
		if _, err := Decode(whole[:n]); err == nil {
			taken++
		} else if !errors.Is(err, ErrTrace) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if taken != 2 { // after the first node, after the second
		t.Errorf("%d beginnings are taken", taken)
	}
	if _, err := Decode(whole[:len(whole)-3]); err == nil || !strings.Contains(err.Error(), "message 3 at byte") {
		t.Errorf("%v", err)
	}
}

// TestAbsentControl: a control dependency of a node on itself, or on one that is not in the trace, is left out with a
// warning. If control dependencies make a cycle, all are left out. A data dependency is refused.
func TestAbsentControl(t *testing.T) {
	traces := pair()
	traces[1].Nodes[1].Control = []uint64{3, 4, 9}
	trace, err := Decode(encode(traces[1]))
	require.NoError(t, err)
	var said []string
	o := options
	o.Warn = func(text string) { said = append(said, text) }
	g, err := Graph([]*Trace{traces[0], trace}, o)
	if err != nil || len(said) != 1 || !strings.Contains(said[0], "rank 1: left out 2 control dependencies") ||
		!strings.Contains(said[0], "node 9 on node 3") {
		t.Fatalf("%v, %q", err, said)
	}
	without, err := Graph(pair(), options)
	if err != nil || len(g.Deps) != len(without.Deps)+1 { // the one on node 4
		t.Errorf("%v, %d dependencies, %d without", err, len(g.Deps), len(without.Deps))
	}
	traces[1].Nodes[0].Control = []uint64{9} // which waits for it
	if _, err := Graph(traces, o); err != nil || len(said) != 2 ||
		!strings.Contains(said[1], "all 5 control dependencies") {
		t.Errorf("a cycle: %v, %q", err, said)
	}
	traces[1].Nodes[1].Deps = []uint64{3}
	if _, err := Decode(encode(traces[1])); !errors.Is(err, ErrTrace) {
		t.Errorf("a data dependency: %v", err)
	}
}

func TestRefusedNaming(t *testing.T) {
	for want, change := range map[string]func(n []Node){
		`node 2 "send": data_deps: there is no node 77`:     func(n []Node) { n[1].Deps = []uint64{77} },
		`node 2 "send": comm_size: -5 is negative`:          func(n []Node) { n[1].Bytes = -5 },
		`node 1 "forward": duration_micros: -1 is negative`: func(n []Node) { n[0].DurationUS = -1 },
		`node 5 "grad": comm_type: 12 is none`:              func(n []Node) { n[2].Collective = 12 },
		`node 1 "send": id: there is another`:               func(n []Node) { n[1].ID = 1 },
		`node 1 "forward": type: 0 is none`:                 func(n []Node) { n[0].Type = Invalid },
		`node 2 "send": comm_dst: rank 0 sends to itself`:   func(n []Node) { n[1].Dst = 0 },
	} {
		trace := pair()[0]
		change(trace.Nodes)
		if err := trace.check(); !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A negative duration is a number beyond all bounds by the time it is on the wire.
	body := protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), math.MaxUint64)
	n, err := decodeNode(body)
	require.NoError(t, err)
	n.Type = Compute
	if err := n.check(); err == nil || !strings.Contains(err.Error(), "duration_micros") {
		t.Errorf("%v", err)
	}
}

func TestGraph(t *testing.T) {
	g, err := Graph(spread(), options)
	require.NoError(t, err)
	if len(g.Pods) != 2 || len(g.Links) != 1 || g.Links[0].Pods != [2]int{0, 1} {
		t.Fatalf("%+v, %+v", g.Pods, g.Links)
	}
	byName := map[string]*dag.Task{}
	for i := range g.Tasks {
		byName[g.Tasks[i].Name] = &g.Tasks[i]
	}
	send := byName["rank 0 node 2 send"]
	if send == nil || send.Flows != 1 || send.Bytes != 5e6 || send.Src[0] != 0 || send.Dst[0] != 2 {
		t.Errorf("send %+v", send)
	}
	for _, name := range []string{"rank 0 node 5 grad, pod 0 to 1", "rank 0 node 5 grad, pod 1 to 0"} {
		if x := byName[name]; x == nil || x.Bytes != 8e6 || x.Flows != 1 {
			t.Errorf("%s: %+v", name, x)
		}
	}
	// 100 to compute, 100 to send 5 MB at 50 GB/s, 50 to compute, 160 for 8 MB of a ring of 2.
	if got := longest(t, g); math.Abs(got-410) > 1e-9 {
		t.Errorf("longest path %v us", got)
	}
}

// longest is the longest path with every transfer at its full rate.
func longest(t *testing.T, g *dag.Graph) float64 {
	order, err := g.Order()
	require.NoError(t, err)
	start, most := make([]float64, len(g.Tasks)), 0.0
	for _, i := range order {
		end := start[i] + g.LeastTime(&g.Tasks[i])
		most = max(most, end)
		for _, d := range g.Deps {
			if d.From == i {
				start[d.To] = max(start[d.To], end+d.Delay)
			}
		}
	}
	return most
}

func TestGraphWithinPodIsWork(t *testing.T) {
	g, err := Graph(pair(), options)
	require.NoError(t, err)
	for i := range g.Tasks {
		if g.Tasks[i].Transfer() {
			t.Errorf("%+v", g.Tasks[i])
		}
	}
	// 100, 5 MB at 100 GB/s, 50, 8 MB at 100 GB/s
	if got := longest(t, g); math.Abs(got-(100+50+50+80)) > 1e-9 {
		t.Errorf("longest path %v us", got)
	}
}

func TestGraphRefused(t *testing.T) {
	for want, change := range map[string]func(t []*Trace){
		"rank 2 node 4 recv: no rank sends":               func(t []*Trace) { t[2].Nodes[0].Tag = 8 },
		"rank 0 node 2 send: no rank receives":            func(t []*Trace) { t[2].Nodes[0].Type = Compute },
		"rank 2 node 4 recv: comm_size: 4e+06, but 5e+06": func(t []*Trace) { t[2].Nodes[0].Bytes = 4e6 },
		"rank 2 node 11 grad: ALL_GATHER of 8e+06 bytes":  func(t []*Trace) { t[2].Nodes[2].Collective = AllGather },
		"rank 0 has 1 collectives of group \"\"": func(t []*Trace) {
			t[0].Nodes[2].Group = ""
			t[1].Nodes[0].Type = Together
		},
		"cycle: tasks[": func(t []*Trace) { t[0].Nodes[1].Deps = []uint64{5} },
		"rank 2 node 4 recv: comm_dst: a receive of rank 3": func(t []*Trace) { t[2].Nodes[0].Dst = 3 },
		"rank 0 node 2 send: comm_src: a send of rank 1":    func(t []*Trace) { t[0].Nodes[1].Src, t[2].Nodes[0].Src = 1, 1 },
	} {
		traces := spread()
		change(traces)
		if want == "rank 0 has 1 collectives of group \"\"" {
			want = "collectives of group"
		}
		if _, err := Graph(traces, options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Graph(spread(), Options{GPUsPerPod: 3, Gbps: 1, ScaleUpGBs: 1}); err == nil {
		t.Error("odd pods are taken")
	}
}

// TestGraphNamesFirstUnreceived: of several sends that no rank receives, the error names the first, each time.
func TestGraphNamesFirstUnreceived(t *testing.T) {
	for range 30 {
		traces := spread()
		for id := range uint64(3) {
			traces[1].Nodes = append(traces[1].Nodes, Node{ID: 50 + id, Type: Send, Bytes: 1, Src: 1, Dst: 3, Tag: int64(id)})
		}
		if _, err := Graph(traces, options); err == nil || !strings.Contains(err.Error(), "rank 1 node 50") {
			t.Fatalf("got %v", err)
		}
	}
}

func TestJSON(t *testing.T) {
	for _, name := range []string{"pair.0", "pair.1", "flat"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(t, err)
		got, err := DecodeJSON(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := pair()[strings.Count(name, "1")]
		if name == "flat" {
			want.Version = ""
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\nwant %+v", name, got, want)
		}
		for n := range len(data) - 1 {
			if _, err := DecodeJSON(data[:n]); err != nil && !errors.Is(err, ErrTrace) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
	for text, want := range map[string]string{
		`{"version":"1"}{"id":"-1","type":"COMP_NODE"}`:                      "id: -1",
		`{"version":"1"}{"id":"1","type":"COMP_NODE","durationMicros":"-3"}`: "duration_micros: -3",
		`{"version":"1"}{"id":"1","type":"DREAM_NODE"}`:                      "type: -1",
		`{"version":"1"}{"id":"1","type":"COMP_NODE"`:                        "cut short",
		`{"version":"1"}`: "no nodes",
		``:                "cut short",
		`{"workload_graph":[{"Id":1,"NodeType":4,"data_deps":[2]}]}`: "no node 2",
	} {
		if _, err := DecodeJSON([]byte(text)); !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, t := range pair() {
		f.Add(encode(t))
		text, _ := json.Marshal(t)
		f.Add(text)
	}
	for _, name := range []string{"pair.0", "pair.1", "flat"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, decode := range []func([]byte) (*Trace, error){Decode, DecodeJSON} {
			trace, err := decode(data)
			if err != nil {
				if !errors.Is(err, ErrTrace) {
					t.Errorf("%v", err)
				}
				continue
			}
			if err := trace.check(); err != nil {
				t.Errorf("taken, but %v", err)
			}
			g, err := Graph([]*Trace{trace}, options)
			if err == nil {
				err = g.Validate()
			} else if errors.Is(err, ErrTrace) || errors.Is(err, dag.ErrGraph) {
				err = nil
			}
			if err != nil {
				t.Error(fmt.Errorf("graph: %w", err))
			}
		}
	})
}
