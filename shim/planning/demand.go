package planning

import (
	"crypto/sha256"
	"encoding/binary"

	"lightpath/plans"
)

// Pair holds the bytes that one rank sends another in a round.
type Pair struct {
	Src, Dst int
	Bytes    int64
}

// Demand is the matrix of a round, with its key.
type Demand struct {
	Pairs  []Pair
	ranks  int
	Digest [sha256.Size]byte
}

// NewDemand returns the demand of messages between pairs of ranks.
func NewDemand(pairs []Pair, ranks int) *Demand {
	d := &Demand{Pairs: pairs, ranks: ranks}
	var b []byte
	for _, p := range pairs {
		b = binary.LittleEndian.AppendUint32(b, uint32(p.Src)<<16|uint32(p.Dst))
		b = binary.LittleEndian.AppendUint64(b, uint64(p.Bytes))
	}
	d.Digest = sha256.Sum256(b)
	return d
}

// Total returns the bytes of all pairs, and the bytes of the port that sends or receives most.
func (d *Demand) Total() (total, busiest int64) {
	out, in := make([]int64, d.ranks), make([]int64, d.ranks)
	for _, p := range d.Pairs {
		out[p.Src] += p.Bytes
		in[p.Dst] += p.Bytes
		total += p.Bytes
		busiest = max(busiest, out[p.Src], in[p.Dst])
	}
	return total, busiest
}

// Rounds reports whether some matrix gains by circuits, so that ranks post their sends and receives to the leader.
func (o *Site) Rounds() bool {
	return o.static() || o.Packets == nil ||
		!o.Packets.AlwaysFaster(o.holdUS(), float64(len(o.Planes))*o.Template.BandwidthGbps)
}

// Worthwhile reports whether a matrix gains by circuits. If the fabric file states the costs of packet planes, they are
// compared with the matrix's plan. Otherwise it gains if, over all planes, its busiest port sends for longer than a
// plane takes to switch. Planes that do not switch are always used.
func (o *Site) Worthwhile(d *Demand) bool {
	_, busiest := d.Total()
	t, planes := o.Template, len(o.Planes)
	switch {
	case busiest > 0 && o.static():
		return true
	case busiest > 0 && o.Packets != nil && o.Packets.Stated:
		return !o.Packets.Faster(o.Packets.US(1, float64(busiest)), o.DemandProblem(d, planes), planes)
	}
	return plans.WireUS(t, float64(busiest))/float64(planes) > o.holdUS()
}

// holdUS returns the cost of a hold besides its bytes. The model of demands has no cost per transmission (alpha), and
// every hold begins with one.
func (o *Site) holdUS() float64 { return o.Template.ReconfigUS + o.Template.AlphaUS + o.Template.HopUS }

// DemandProblem returns the planning problem of a matrix on a number of planes.
func (o *Site) DemandProblem(d *Demand, planes int) *plans.Problem {
	p := *o.Template
	p.Planes, p.Initial, p.Final, p.Steps = planes, nil, plans.Final{}, nil
	p.ReconfigUS = o.holdUS()
	p.Demand = make([][]float64, d.ranks)
	for r := range p.Demand {
		p.Demand[r] = make([]float64, d.ranks)
	}
	for _, x := range d.Pairs {
		p.Demand[x.Src][x.Dst] = float64(x.Bytes)
	}
	return &p
}
