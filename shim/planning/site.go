package planning

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/packets"
	"lightpath/plans/planner"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/planeset"
	"lightpath/shim/settings"
)

// Agreed is a plan with its problem, equal on all ranks.
type Agreed struct {
	ID      ID
	Plan    *plans.Plan
	Problem *plans.Problem
	StepOf  []int // schedule step of each problem step
}

// Site holds the facts that all plans of a communicator share: its fabric, ports and settings.
type Site struct {
	Cfg      *settings.Config
	Ranks    int
	Places   *circuit.Placement
	fabric   string // digest
	name     string // of the fabric
	Planes   []fabric.Plane
	Template *plans.Problem
	Pods     [][]int // the ranks of each pod of the fabric; nil where it has fewer than two
	// Packets has the costs of the communicator's packet planes, and Choices their algorithms. Both are nil if all calls
	// use circuits.
	Packets *packets.Costs
	Choices *dispatch.Choices
}

// NewSite returns the site of a communicator whose ranks have those ports of a fabric.
func NewSite(cfg *settings.Config, fab *fabric.Fabric, ports []int) Site {
	t := fab.Problem()
	t.Ranks = len(ports)
	t.Final = plans.Final{Kind: plans.FinalInitial}
	return Site{Cfg: cfg, Ranks: len(ports), Places: circuit.Place(ports, fab.Ranks), fabric: fab.Digest(),
		name: fab.Name, Planes: fab.Planes,
		Template: t, Pods: dispatch.PodsOf(fab, ports)}
}

// static reports whether communicators use the circuits that they find.
func (o *Site) static() bool {
	return o.Cfg.Plan.Current && o.Cfg.Plan.Planner == settings.PlannerStatic
}

// Interim makes the plan that serves until the chosen planner has finished: quick, and the same on every rank. It moves
// no circuits if the chosen planner moves none.
func (o *Site) Interim(j *Job) (*Agreed, error) {
	name := "perstep"
	if o.static() {
		name = settings.PlannerStatic
	}
	plan, err := planner.Solve(context.Background(), name, j.Problem, planner.Options{SinglePlane: true})
	if err != nil {
		return nil, err
	}
	return j.sealed(plan)
}

// All is the set of the fabric's planes.
func (o *Site) All() planeset.Set { return planeset.All(len(o.Planes)) }

// ShapeOf reduces a shape to what a plan depends on. Operators and in-place calls share plans.
func ShapeOf(s calls.Shape) calls.Shape {
	s.Op, s.InPlace, s.Scripted = 0, false, false
	return s
}

// OnPackets reports whether a call uses the packet planes because these are faster: see [packets.Costs.Faster]. p is
// its problem on circuits. The result depends on the call, the fabric file and the settings of rank 0. A call that
// names planes or a plan uses circuits, and so do all calls if LIGHTPATH_PLANNER names a planner.
func (o *Site) OnPackets(s calls.Shape, p *plans.Problem) bool {
	if o.Packets == nil || o.Cfg.Plan.Planner != planner.Auto || s.Request != (calls.Shape{}).Request {
		return false
	}
	us, err := dispatch.PacketsUS(s, o.Ranks, o.Choices, o.Cfg, o.Packets)
	return err == nil && o.Packets.Faster(us, p, len(o.Planes))
}

// IDOf returns the id of a plan: its digest.
func IDOf(p *plans.Plan) (id ID, err error) {
	raw, err := hex.DecodeString(p.Digest)
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("shim: plan digest %.80q: %w", p.Digest, plans.ErrDigest)
	}
	return ID(raw), nil
}

// ID names a plan: its digest.
type ID [sha256.Size]byte

// Key is the plan's part of a [shape].
func (p *ID) Key() uint64 { return binary.LittleEndian.Uint64(p[:]) }

// WithoutForwarding returns a copy of o whose plans do not forward.
func (o *Site) WithoutForwarding() Site {
	site, template := *o, *o.Template
	template.Forwarding = false
	site.Template = &template
	return site
}
