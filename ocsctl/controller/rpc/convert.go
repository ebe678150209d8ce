package rpc

import (
	"fmt"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// The functions of this file convert to messages and back. The latter check every field that a peer can get wrong;
// their results share no memory with the message.

func toMap(p circuit.Permutation) []int32 {
	if p == nil {
		return nil
	}
	m := make([]int32, len(p))
	for r, s := range p {
		m[r] = int32(s)
	}
	return m
}

// fromMap reads a map of ports entries.
func fromMap(m []int32, ports int) (circuit.Permutation, error) {
	if len(m) != ports {
		return nil, fmt.Errorf("map of %d ports, want %d: %w", len(m), ports, ErrProtocol)
	}
	p := make(circuit.Permutation, ports)
	for r, s := range m {
		p[r] = int(s)
	}
	if err := p.Validate(ports); err != nil {
		return nil, fmt.Errorf("map %w: %w", err, ErrProtocol)
	}
	return p, nil
}

// optionalMap is fromMap for maps that are only shown: it accepts any size, and no map.
func optionalMap(m []int32) (circuit.Permutation, error) {
	if len(m) == 0 {
		return nil, nil
	}
	return fromMap(m, min(len(m), controller.MaxPorts))
}

func toNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func toLease(l *ocsctl.Lease) *ocspb.Lease {
	m := &ocspb.Lease{Holder: l.Holder, Mask: l.Mask, Ports: toPorts(l.Ports)}
	for _, c := range l.Circuits {
		m.Circuits = append(m.Circuits, &ocspb.RankMap{To: toMap(c)})
	}
	return m
}

func fromLease(m *ocspb.Lease) (l ocsctl.Lease, err error) {
	l = ocsctl.Lease{Holder: m.GetHolder(), Mask: m.GetMask(), Ports: fromPorts(m.GetPorts())}
	for _, c := range m.GetCircuits() {
		to, err := fromMap(c.GetTo(), len(l.Ports))
		if err != nil {
			return l, err
		}
		l.Circuits = append(l.Circuits, to)
	}
	return l, nil
}

func toLeaseSnapshot(l controller.LeaseSnapshot) *ocspb.Lease {
	return &ocspb.Lease{Holder: l.Holder, Mask: l.Mask, SinceUnixNano: toNano(l.Since), Port: uint32(l.Port), Job: l.Job}
}

func fromLeaseSnapshot(l *ocspb.Lease) controller.LeaseSnapshot {
	return controller.LeaseSnapshot{Port: int(l.GetPort()), Holder: l.GetHolder(), Mask: l.GetMask(),
		Since: fromNano(l.GetSinceUnixNano()), Job: l.GetJob()}
}

func toJob(j *controller.Job) *ocspb.Job {
	if j == nil {
		return nil
	}
	return &ocspb.Job{Id: j.ID, Name: j.Name, Ports: toPorts(j.Ports), Mask: j.Mask, Fixed: j.Fixed,
		SinceUnixNano: toNano(j.Since), Who: j.Who}
}

func fromJob(j *ocspb.Job) *controller.Job {
	if j == nil {
		return nil
	}
	return &controller.Job{ID: oneLine(j.GetId()), Name: oneLine(j.GetName()), Ports: fromPorts(j.GetPorts()),
		Mask: j.GetMask(), Fixed: j.GetFixed(), Since: fromNano(j.GetSinceUnixNano()), Who: oneLine(j.GetWho())}
}

func toPlaneInfo(p ocsctl.PlaneInfo) *ocspb.PlaneInfo {
	return &ocspb.PlaneInfo{
		Name: p.Name, BandwidthBitsPerSec: p.BandwidthBitsPerSec,
		ReconfigNs: int64(p.Reconfig), ReconfigPerPortNs: int64(p.ReconfigPerPort),
	}
}

func fromPlaneInfo(p *ocspb.PlaneInfo) ocsctl.PlaneInfo {
	return ocsctl.PlaneInfo{
		Name: oneLine(p.GetName()), BandwidthBitsPerSec: p.GetBandwidthBitsPerSec(),
		Reconfig: time.Duration(p.GetReconfigNs()), ReconfigPerPort: time.Duration(p.GetReconfigPerPortNs()),
	}
}

func toTrial(t *controller.Trial) *ocspb.Trial {
	if t == nil {
		return nil
	}
	return &ocspb.Trial{Planes: toPorts(t.Planes), UntilUnixNano: toNano(t.Until), Who: t.Who, Before: toMap(t.Before),
		After: toMap(t.After)}
}

func fromTrial(t *ocspb.Trial) (*controller.Trial, error) {
	if t == nil {
		return nil, nil
	}
	before, err := optionalMap(t.GetBefore())
	if err != nil {
		return nil, fmt.Errorf("trial: before: %w", err)
	}
	after, err := optionalMap(t.GetAfter())
	if err != nil {
		return nil, fmt.Errorf("trial: after: %w", err)
	}
	return &controller.Trial{Planes: fromPorts(t.GetPlanes()), Until: fromNano(t.GetUntilUnixNano()), Who: t.GetWho(),
		Before: before, After: after}, nil
}

func toEvent(e *controller.Event) *ocspb.Event {
	m := &ocspb.Event{
		Seq: e.Seq, TimeUnixNano: toNano(e.Time), Kind: string(e.Kind), Plane: int32(e.Plane), Epoch: e.Epoch,
		From: toMap(e.From), To: toMap(e.To), TookNs: int64(e.Took), WaitedNs: int64(e.Waited), Verified: e.Verified,
		Port: int32(e.Port), Holder: e.Holder, Mask: e.Mask, Who: e.Who, Token: e.Token, Error: e.Err,
		Job: toJob(e.Job), Trial: toTrial(e.Trial),
	}
	if e.Moved != nil {
		m.Moved = &ocspb.Moved{From: e.Moved.From, To: e.Moved.To}
	}
	for port, b := range e.Baselines {
		if m.Baselines == nil {
			m.Baselines = make(map[uint32]*ocspb.Baseline)
		}
		m.Baselines[uint32(port)] = &ocspb.Baseline{Dbm: b.DBm, Drop: b.Drop}
	}
	return m
}

func fromEvent(e *ocspb.Event) (controller.Event, error) {
	from, err := optionalMap(e.GetFrom())
	if err != nil {
		return controller.Event{}, fmt.Errorf("event %d: from: %w", e.GetSeq(), err)
	}
	to, err := optionalMap(e.GetTo())
	if err != nil {
		return controller.Event{}, fmt.Errorf("event %d: to: %w", e.GetSeq(), err)
	}
	trial, err := fromTrial(e.GetTrial())
	if err != nil {
		return controller.Event{}, fmt.Errorf("event %d: %w", e.GetSeq(), err)
	}
	var moved *controller.Moved
	if m := e.GetMoved(); m != nil {
		moved = &controller.Moved{From: m.GetFrom(), To: m.GetTo()}
	}
	var baselines map[int]controller.Baseline
	for port, b := range e.GetBaselines() {
		if baselines == nil {
			baselines = make(map[int]controller.Baseline)
		}
		baselines[int(port)] = controller.Baseline{DBm: b.GetDbm(), Drop: b.GetDrop()}
	}
	return controller.Event{
		Seq: e.GetSeq(), Time: fromNano(e.GetTimeUnixNano()), Kind: controller.EventKind(e.GetKind()),
		Plane: int(e.GetPlane()), Epoch: e.GetEpoch(),
		From: from, To: to, Took: time.Duration(e.GetTookNs()), Waited: time.Duration(e.GetWaitedNs()),
		Verified: e.GetVerified(),
		Port:     int(e.GetPort()), Holder: e.GetHolder(), Mask: e.GetMask(), Who: e.GetWho(), Token: e.GetToken(),
		Err: e.GetError(), Job: fromJob(e.GetJob()), Trial: trial, Moved: moved, Baselines: baselines,
	}, nil
}

func toSnapshot(s *controller.Snapshot) *ocspb.Snapshot {
	m := &ocspb.Snapshot{TimeUnixNano: toNano(s.Time), Name: s.Name, Leader: s.Leader, Token: s.Token}
	for i := range s.Planes {
		m.Planes = append(m.Planes, toPlaneSnapshot(&s.Planes[i]))
	}
	for _, p := range s.Ports {
		m.Ports = append(m.Ports, &ocspb.PortSnapshot{Port: uint32(p.Port), Attached: p.Attached, Who: p.Who,
			SinceUnixNano: toNano(p.Since)})
	}
	for _, l := range s.Queue {
		m.Queue = append(m.Queue, toLeaseSnapshot(l))
	}
	for i := range s.Jobs {
		j := toJob(&s.Jobs[i].Job)
		j.Waits = s.Jobs[i].Waits
		m.Jobs = append(m.Jobs, j)
	}
	return m
}

func fromSnapshot(m *ocspb.Snapshot) (controller.Snapshot, error) {
	s := controller.Snapshot{Time: fromNano(m.GetTimeUnixNano()), Name: m.GetName(), Leader: m.GetLeader(),
		Token: m.GetToken()}
	for _, p := range m.GetPlanes() {
		plane, err := fromPlaneSnapshot(p)
		if err != nil {
			return controller.Snapshot{}, fmt.Errorf("plane %s: %w", oneLine(p.GetName()), err)
		}
		s.Planes = append(s.Planes, plane)
	}
	for _, p := range m.GetPorts() {
		s.Ports = append(s.Ports, controller.PortSnapshot{Port: int(p.GetPort()), Attached: p.GetAttached(), Who: p.GetWho(),
			Since: fromNano(p.GetSinceUnixNano())})
	}
	for _, l := range m.GetQueue() {
		s.Queue = append(s.Queue, fromLeaseSnapshot(l))
	}
	for _, j := range m.GetJobs() {
		s.Jobs = append(s.Jobs, controller.JobSnapshot{Job: *fromJob(j), Waits: j.GetWaits()})
	}
	return s, nil
}

func toPlaneSnapshot(p *controller.PlaneSnapshot) *ocspb.PlaneSnapshot {
	m := &ocspb.PlaneSnapshot{
		Name: p.Name, State: string(p.State), Reason: p.Reason, Epoch: p.Epoch, Map: toMap(p.Map), Target: toMap(p.Target),
		Posted: toPorts(p.Posted), Missing: toPorts(p.Missing), Verified: p.Verified, Switches: p.Switches,
		Failures: p.Failures,
		Desired:  toMap(p.Desired), Posts: p.Posts, Refused: p.Refused, Unlit: toPorts(p.Unlit), Dim: toPorts(p.Dim),
	}
	m.Trial = toTrial(p.Trial)
	for _, o := range p.Out {
		m.Out = append(m.Out, &ocspb.PortOut{Port: uint32(o.Port), Why: o.Why})
	}
	for _, h := range p.Holders {
		m.Holders = append(m.Holders, toLeaseSnapshot(h))
	}
	return m
}

func fromPlaneSnapshot(m *ocspb.PlaneSnapshot) (controller.PlaneSnapshot, error) {
	p := controller.PlaneSnapshot{
		Name: m.GetName(), State: controller.PlaneState(m.GetState()), Reason: m.GetReason(), Epoch: m.GetEpoch(),
		Posted: fromPorts(m.GetPosted()), Missing: fromPorts(m.GetMissing()),
		Verified: m.GetVerified(), Switches: m.GetSwitches(), Failures: m.GetFailures(), Posts: m.GetPosts(),
		Refused: m.GetRefused(),
		Unlit:   fromPorts(m.GetUnlit()), Dim: fromPorts(m.GetDim()),
	}
	var err error
	if p.Trial, err = fromTrial(m.GetTrial()); err != nil {
		return p, err
	}
	for _, o := range m.GetOut() {
		p.Out = append(p.Out, controller.PortOut{Port: int(o.GetPort()), Why: o.GetWhy()})
	}
	if p.Map, err = optionalMap(m.GetMap()); err != nil {
		return p, err
	}
	if p.Target, err = optionalMap(m.GetTarget()); err != nil {
		return p, fmt.Errorf("target: %w", err)
	}
	if p.Desired, err = optionalMap(m.GetDesired()); err != nil {
		return p, fmt.Errorf("desired: %w", err)
	}
	for _, h := range m.GetHolders() {
		p.Holders = append(p.Holders, fromLeaseSnapshot(h))
	}
	return p, nil
}

func toPortStates(ports []controller.PortState) *ocspb.PortsReply {
	m := &ocspb.PortsReply{}
	for i := range ports {
		p := &ports[i]
		m.Ports = append(m.Ports, &ocspb.PortState{Label: p.Label, State: p.State, Failed: p.Failed, Dbm: p.DBm,
			Baseline: p.Baseline, Drop: p.Drop, Dim: p.Dim, File: p.File})
	}
	return m
}

func fromPortStates(m *ocspb.PortsReply) (all []controller.PortState) {
	for _, p := range m.GetPorts() {
		all = append(all, controller.PortState{Label: oneLine(p.GetLabel()), State: oneLine(p.GetState()),
			Failed: p.GetFailed(), DBm: p.Dbm, Baseline: p.Baseline, Drop: p.GetDrop(), Dim: p.GetDim(),
			File: oneLine(p.GetFile())})
	}
	return all
}

func toPorts(ports []int) []uint32 {
	var all []uint32
	for _, p := range ports {
		all = append(all, uint32(p))
	}
	return all
}

func fromPorts(ports []uint32) []int {
	var all []int
	for _, p := range ports {
		all = append(all, int(p))
	}
	return all
}
