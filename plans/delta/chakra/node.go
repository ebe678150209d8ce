package chakra

import (
	"errors"
	"fmt"
	"math"
)

// ErrTrace is wrapped by every error about a trace. The message names node and field, or the place in the file.
var ErrTrace = errors.New("bad trace")

// Type is the type of a node, by its number in the protobuf schema.
type Type int

// The types of nodes that matter here.
const (
	Invalid  Type = 0
	Compute  Type = 4
	Send     Type = 5
	Receive  Type = 6
	Together Type = 7 // a collective
	lastType Type = 10
)

// typeNames are the schema's names, which the JSON form uses.
var typeNames = []string{"INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
	"COMM_SEND_NODE",
	"COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE"}

// Collective is a kind of collective, by its number in the schema.
type Collective int

// The collectives.
const (
	AllReduce Collective = iota
	Reduce
	AllGather
	Gather
	Scatter
	Broadcast
	AllToAll
	ReduceScatter
	ReduceScatterBlock
	Barrier
	lastCollective = Barrier
)

var collectiveNames = []string{"ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL",
	"REDUCE_SCATTER",
	"REDUCE_SCATTER_BLOCK", "BARRIER"}

// Node is one node of a rank's trace, with the attributes that decide what it costs.
type Node struct {
	ID         uint64
	Name       string
	Type       Type
	Deps       []uint64 // data: the nodes are in the trace
	Control    []uint64 // control: some may not be in the trace, see [Options.Warn]
	DurationUS float64
	Collective Collective
	Bytes      float64
	Src, Dst   int
	Tag        int64
	Group      string // process group; empty: all ranks
}

// Trace is the record of one rank.
type Trace struct {
	Version string
	Nodes   []Node
}

// maxNumber bounds sizes and times. Larger doubles are not exact, and negative numbers that were stored as unsigned are
// larger.
const maxNumber = 1 << 53

// check reports errors within one trace: numbers, types, two nodes with one id, and data dependencies on missing nodes.
func (t *Trace) check() error {
	known := make(map[uint64]bool, len(t.Nodes))
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if err := n.check(); err != nil {
			return fmt.Errorf("%w: node %d %q: %w", ErrTrace, n.ID, n.Name, err)
		}
		if known[n.ID] {
			return fmt.Errorf("%w: node %d %q: id: there is another node of that id", ErrTrace, n.ID, n.Name)
		}
		known[n.ID] = true
	}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		for _, d := range n.Deps {
			if !known[d] {
				return fmt.Errorf("%w: node %d %q: data_deps: there is no node %d; is the trace cut short?", ErrTrace, n.ID,
					n.Name, d)
			}
		}
	}
	return nil
}

func (n *Node) check() error {
	inRange := func(name string, v float64) error {
		if !(v >= 0 && v < maxNumber) || math.IsNaN(v) {
			return fmt.Errorf("%s: %v is negative or too large", name, v)
		}
		return nil
	}
	if n.Type <= Invalid || n.Type > lastType {
		return fmt.Errorf("type: %d is none", n.Type)
	}
	if err := inRange("duration_micros", n.DurationUS); err != nil {
		return err
	}
	switch n.Type {
	case Send, Receive, Together:
		if err := inRange("comm_size", n.Bytes); err != nil {
			return err
		}
	}
	switch {
	case n.Type == Together && (n.Collective < 0 || n.Collective > lastCollective):
		return fmt.Errorf("comm_type: %d is none", n.Collective)
	case (n.Type == Send || n.Type == Receive) && n.Src == n.Dst:
		return fmt.Errorf("comm_dst: rank %d sends to itself", n.Src)
	}
	return nil
}
