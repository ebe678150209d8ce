package arbiter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/ocsctl"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
	"lightpath/shim/ticket"
)

// rig is a machine with planes, plans and a clock that the test controls. It grants planes when the test says so.
type rig struct {
	t         *testing.T
	m         *Machine
	now       time.Time
	epochs    []uint32
	maps      []circuit.Permutation // of ports
	down      []error
	row       planning.Row
	iteration *planning.Iteration
	log       []string // actions of the last step, in short
	last      []Action
}

// newRig returns a machine for ranks on the first ports of a fabric.
func newRig(t *testing.T, ranks, ports, planes int) *rig {
	r := &rig{
		t: t, now: time.Unix(1000, 0), epochs: make([]uint32, planes), maps: make([]circuit.Permutation, planes),
		down: make([]error, planes), row: planning.Row{Best: &planning.Agreed{ID: planning.ID{1}}},
	}
	site := &planning.Site{
		Cfg: &settings.Config{}, Ranks: ranks, Planes: make([]fabric.Plane, planes),
		Template: &plans.Problem{Ranks: ranks, BandwidthGbps: 1, ReconfigUS: 1},
	}
	at := make([]int, ranks)
	for rank := range at {
		at[rank] = rank
	}
	site.Places = circuit.Place(at, ports)
	for j := range planes {
		site.Planes[j].Name = fmt.Sprint("p", j)
		r.maps[j] = circuit.AllDark(ports)
	}
	r.m = New(Config{Ranks: ranks, Site: site, RoundWait: time.Second}, r, r)
	return r
}

// State implements View.
func (r *rig) State(plane int) (uint32, circuit.Permutation, error) {
	return r.epochs[plane], r.maps[plane], r.down[plane]
}

// Waiting implements View.
func (r *rig) Waiting(plane int) string { return fmt.Sprint("plane ", plane, " waits") }

// Version implements Book.
func (r *rig) Version() uint32 { return 7 }

// Row implements Book.
func (r *rig) Row(calls.Shape, planeset.Set, []circuit.Permutation) (planning.Row, error) {
	return r.row, nil
}

// Demand implements Book.
func (r *rig) Demand(d *planning.Demand, maps []circuit.Permutation) (*plans.Plan, error) {
	return &plans.Plan{Planner: "test", Planes: make([][]plans.Entry, len(maps))}, nil
}

// Iteration implements Book.
func (r *rig) Iteration(uint64, func() []planning.Step) *planning.Iteration { return r.iteration }

// Encoded implements Book.
func (r *rig) Encoded(id planning.ID) ([]byte, error) {
	if id != r.row.Best.ID {
		return nil, errdefs.ErrInternal
	}
	return []byte("plan"), nil
}

// step makes the machine handle an event and compares its actions.
func (r *rig) step(e Event, want ...string) {
	r.t.Helper()
	r.last = slices.Clone(r.m.Step(r.now, &e))
	r.log = r.log[:0]
	for i := range r.last {
		r.log = append(r.log, r.describe(&r.last[i]))
	}
	if !slices.Equal(r.log, want) {
		r.t.Fatalf("event %+v:\n got %q\nwant %q", e, r.log, want)
	}
}

func (r *rig) describe(a *Action) string {
	switch a.Kind {
	case SendTicket:
		var t ticket.Ticket
		if _, err := ticket.Decode(a.Body, &t); err != nil {
			r.t.Fatal(err)
		}
		how := fmt.Sprintf("planes %b", uint64(t.Use))
		for flag, name := range map[uint8]string{ticket.Packet: "packet", ticket.Packet | ticket.Always: "always"} {
			if t.Flags == flag {
				how = name
			}
		}
		if t.Flags&ticket.Maps != 0 {
			how += " maps"
		}
		if t.Flags&ticket.Ahead != 0 {
			how += " ahead"
		}
		return fmt.Sprintf("ticket %d to %d: %s", a.Seq, a.Rank, how)
	case SendRecall:
		return fmt.Sprintf("recall %d", a.Seq)
	case SendPlan:
		return fmt.Sprintf("plan to %d", a.Rank)
	case Acquire:
		if a.Lease.Circuits != nil {
			return fmt.Sprintf("acquire %b with %v", a.Lease.Mask, a.Lease.Circuits)
		}
		return fmt.Sprintf("acquire %b", a.Lease.Mask)
	case Release:
		return fmt.Sprintf("release %b", uint64(a.Planes))
	case Await:
		return fmt.Sprintf("await %d epoch %d", a.Plane, a.Epoch)
	case Prepare:
		return fmt.Sprintf("prepare %d epoch %d to %v", a.Plane, a.Epoch, a.Target)
	case SetTimer:
		return fmt.Sprintf("set %d", a.Timer)
	case StopTimer:
		return fmt.Sprintf("stop %d", a.Timer)
	case Fail:
		return "fail: " + a.Err.Error()
	}
	return a.Text
}

var allReduce = calls.Shape{Kind: calls.AllReduce, Type: datatype.Float32, Count: 10}

func want(rank int, seq uint64) Event {
	return Event{Kind: Want, Rank: rank, Seq: seq, Shape: allReduce}
}

// done returns the end of an operation that leaves planes where they are.
func (r *rig) done(rank int, seq uint64) Event {
	t := &ticket.Ticket{Planes: make([]ticket.Plane, len(r.epochs))}
	for j := range t.Planes {
		t.Planes[j] = ticket.At(r.epochs[j], r.maps[j][:r.m.cfg.Ranks])
	}
	return Event{Kind: Done, Rank: rank, Seq: seq, Standing: t}
}

// held makes two ranks hold all planes after operation 1.
func (r *rig) held(all planeset.Set) {
	r.t.Helper()
	r.step(want(0, 1))
	r.step(want(1, 1), "stop 0", fmt.Sprintf("acquire %b", uint64(all)), "set 0")
	r.step(Event{Kind: Granted, Planes: all}, "stop 0", fmt.Sprintf("ticket 1 to -1: planes %b maps", uint64(all)))
	r.step(r.done(1, 1))
	r.step(r.done(0, 1), "set 0")
}

// TestCollective checks that planes are obtained when all ranks have asked, and stay for the next operation.
func TestCollective(t *testing.T) {
	r := newRig(t, 2, 2, 2)
	r.held(0b11)
	r.step(want(1, 2))
	r.step(want(0, 2), "stop 0", "ticket 2 to -1: planes 11")
	r.step(Event{Kind: Expired, Timer: IdleTimer}) // during the operation it means nothing
	r.step(Event{Kind: PlanLack, Rank: 1, Seq: 2, Plan: planning.ID{1}}, "plan to 1")
	r.step(r.done(0, 2))
	r.step(r.done(1, 2), "set 0")
	r.epochs[0] = 1 // another communicator has moved a plane: the ticket tells ranks where it is
	r.step(want(0, 3))
	r.step(want(1, 3), "stop 0", "ticket 3 to -1: planes 11 maps")
	r.step(r.done(0, 3))
	r.step(r.done(1, 3), "set 0")
	r.step(Event{Kind: Expired, Timer: IdleTimer}, "release 11")
	if r.m.Held() != 0 {
		t.Errorf("planes %b are held", uint64(r.m.Held()))
	}
}

// TestPlanes checks which planes an operation gets.
func TestPlanes(t *testing.T) {
	for name, k := range map[string]struct {
		change func(r *rig)
		want   []string
	}{
		"no plan": {func(r *rig) { r.row = planning.Row{} }, []string{"stop 0", "ticket 2 to -1: packet", "set 0"}},
		"never a plan": {func(r *rig) {
			r.row = planning.Row{Hopeless: true}
		}, []string{"stop 0", "ticket 2 to -1: always", "set 0"}},
		"the interim plan": {func(r *rig) {
			r.row = planning.Row{Interim: r.row.Best}
		}, []string{"stop 0", "ticket 2 to -1: planes 11"}},
		"a plane is down": {func(r *rig) { r.down[1] = ocsctl.ErrPlaneDown }, []string{
			"stop 0", "plane p1 is out of service (" + ocsctl.ErrPlaneDown.Error() + "); going on with 1 of 2 planes",
			"release 10",
			"ticket 2 to -1: planes 1",
		}},
		"a plane has lost frames": {func(r *rig) { r.down[1] = ocsctl.ErrFramesLost }, []string{
			"stop 0", "fail: shim: plane 1 epoch 0: " + ocsctl.ErrFramesLost.Error(),
		}},
		"held for long": {func(r *rig) { r.now = r.now.Add(MaxHold + 1) },
			[]string{"stop 0", "release 11", "acquire 11", "set 0"}},
		"held for long, on the way": {
			func(r *rig) { r.now = r.now.Add(MaxHold + 1); r.m.standing[1].Epoch = 3 }, []string{"stop 0", "await 1 epoch 3"},
		},
		"another port has a circuit to ours": {func(r *rig) { r.maps[0][2] = 1 }, []string{
			"stop 0", "ticket 2 to -1: planes 11",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, 3, 2)
			r.held(0b11)
			k.change(r)
			r.step(want(0, 2))
			r.step(want(1, 2), k.want...)
		})
	}
}

// TestRelease checks that switching planes are given back once they have arrived.
func TestRelease(t *testing.T) {
	r := newRig(t, 2, 2, 2)
	r.held(0b11)
	r.m.standing[1].Epoch = 3
	r.step(Event{Kind: Expired, Timer: IdleTimer}, "set 0")
	r.epochs[1] = 3
	r.step(Event{Kind: Expired, Timer: IdleTimer}, "release 11")
}

// TestNoPlaneInService checks that an operation runs on packet planes if no plane is in service.
func TestNoPlaneInService(t *testing.T) {
	r := newRig(t, 1, 2, 1)
	r.step(want(0, 1), "stop 0", "acquire 1", "set 0")
	r.step(Event{Kind: Granted, Err: ocsctl.ErrPlaneDown}, "stop 0",
		"plane p0 is out of service ("+ocsctl.ErrPlaneDown.Error()+"); going on with 0 of 1 planes",
		"no plane with circuits is in service; going on with packet planes", "ticket 1 to -1: packet")
	r.step(want(0, 2), "stop 0", "acquire 1", "set 0")
	r.step(Event{Kind: Granted, Planes: 1}, "stop 0", "plane p0 is back in service; going on with 1 of 1 planes",
		"ticket 2 to -1: planes 1 maps")
}

// TestGrantWait checks that operations go on with packet planes if planes are not granted in time, and that a grant
// that comes later serves the operation under way, or is given back.
func TestGrantWait(t *testing.T) {
	const text = "no plane was granted in time, since other communicators hold them or no controller answers; going on " +
		"with packet planes until then (lightpath ocs status shows the holders)"
	r := newRig(t, 1, 1, 1)
	r.step(want(0, 1), "stop 0", "acquire 1", "set 0")
	r.step(Event{Kind: Expired, Timer: IdleTimer}, text, "ticket 1 to -1: packet")
	r.step(want(0, 2), "stop 0", "ticket 2 to -1: packet") // the request stands
	r.step(Event{Kind: Granted, Planes: 1}, "set 0")
	r.step(want(0, 3), "stop 0", "ticket 3 to -1: planes 1 maps")
	r.step(r.done(0, 3), "set 0")
	r.step(Event{Kind: Expired, Timer: IdleTimer}, "release 1")

	r.step(want(0, 4), "stop 0", "acquire 1", "set 0")
	r.step(Event{Kind: Expired, Timer: IdleTimer}, text, "ticket 4 to -1: packet")
	r.step(Event{Kind: Granted, Planes: 1}, "set 0")
	r.step(Event{Kind: Expired, Timer: IdleTimer}, "release 1")

	r.step(want(0, 5), "stop 0", "acquire 1", "set 0")
	r.step(Event{Kind: Expired, Timer: IdleTimer}, text, "ticket 5 to -1: packet")
	r.step(Event{Kind: Granted, Err: ocsctl.ErrPlaneDown})
	r.step(want(0, 6), "stop 0", "acquire 1", "set 0")
}

// TestOnPackets checks that ranks need no more tickets for a shape that is faster on packet planes, also while a plane
// is out of service.
func TestOnPackets(t *testing.T) {
	for _, granted := range []planeset.Set{0b11, 0b01} {
		r := newRig(t, 1, 1, 2)
		r.row = planning.Row{Packets: true}
		r.step(want(0, 1), "stop 0", "acquire 11", "set 0")
		r.m.Step(r.now, &Event{Kind: Granted, Planes: granted})
		r.log = nil
		for i := range r.m.actions {
			r.log = append(r.log, r.describe(&r.m.actions[i]))
		}
		if !slices.Contains(r.log, "ticket 1 to -1: always") {
			t.Errorf("planes %b: %q", granted, r.log)
		}
	}
}

// dark returns the end of operation 1 at a rank, on one plane without circuits between two ranks.
func dark(rank int) Event {
	t := &ticket.Ticket{Planes: []ticket.Plane{ticket.At(0, circuit.AllDark(2))}}
	return Event{Kind: Done, Rank: rank, Seq: 1, Standing: t}
}

// TestMistakes checks that a rank's mistake fails the communicator, and that the machine then does nothing more.
func TestMistakes(t *testing.T) {
	for name, k := range map[string]struct {
		events []Event
		is     error
		says   string
	}{
		"other calls": {[]Event{want(0, 1),
			{Kind: Want, Rank: 1, Seq: 1, Shape: calls.Shape{Kind: calls.AllToAll, Count: 1}}}, errdefs.ErrMismatch,
			"rank 1 called"},
		"wants twice": {[]Event{want(0, 1), want(0, 1)}, control.ErrMessage, "rank 0 wants operation 1 twice"},
		"posts twice": {[]Event{{Kind: Row, Seq: 1, Row: &ticket.Row{}},
			{Kind: Row, Seq: 1, Row: &ticket.Row{}}}, control.ErrMessage, "posts round 1 twice"},
		"ends what is not under way": {[]Event{{Kind: Done, Rank: 1, Seq: 4, Standing: &ticket.Ticket{}}}, control.ErrMessage,
			"rank 1 has ended operation 0x4"},
		"ends on other planes": {[]Event{want(0, 1), want(1, 1), {Kind: Granted, Planes: 1},
			{Kind: Done, Rank: 1, Seq: 1, Standing: &ticket.Ticket{}}}, control.ErrMessage,
			"rank 1 has ended operation 0x1 on 0"},
		"ends twice": {[]Event{want(0, 1), want(1, 1), {Kind: Granted, Planes: 1}, dark(1), dark(1)}, control.ErrMessage,
			"rank 1 has ended operation 0x1 twice"},
		"lacks no plan": {[]Event{{Kind: PlanLack, Rank: 1}}, errdefs.ErrInternal, "plan for rank 1"},
		"controller gone": {[]Event{want(0, 1), want(1, 1), {Kind: Granted, Err: ocsctl.ErrControlLost}},
			ocsctl.ErrControlLost, ""},
		"messages of two sizes": {[]Event{
			{Kind: Row, Rank: 0, Seq: 1, Row: &ticket.Row{Sends: []ticket.Message{{Peer: 1, Bytes: 5}}}},
			{Kind: Row, Rank: 1, Seq: 1, Row: &ticket.Row{Recvs: []ticket.Message{{Peer: 0, Bytes: 6}}}},
		}, errdefs.ErrMismatch, "rank 0 sends 5 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, 2, 1)
			var last []Action
			for i := range k.events {
				last = r.m.Step(r.now, &k.events[i])
			}
			if len(last) == 0 || last[len(last)-1].Kind != Fail {
				t.Fatalf("actions %+v", last)
			}
			if err := last[len(last)-1].Err; !errors.Is(err, k.is) || !strings.Contains(err.Error(), k.says) {
				t.Error(err)
			}
			r.step(want(1, 9))
		})
	}
}

// message returns the row of a rank that exchanges messages with the other of two ranks.
func message(rank int, number uint64, bytes int64) Event {
	m := []ticket.Message{{Peer: 1 - rank, Number: number, Bytes: bytes}}
	return Event{Kind: Row, Rank: rank, Seq: RoundNumber(0, uint32(number)), Row: &ticket.Row{Sends: m, Recvs: m}}
}

// TestRounds checks that a round of all ranks gets circuits if it pays; all others use packet planes.
func TestRounds(t *testing.T) {
	r := newRig(t, 2, 2, 1)
	r.step(message(0, 1, 1e9), "set 1")
	r.step(message(1, 1, 1e9), "stop 1", "stop 0", "acquire 1", "set 0")
	r.step(Event{Kind: Granted, Planes: 1}, "stop 0", "ticket 1 to -1: planes 1 maps")
	r.step(r.done(0, 1))
	r.step(r.done(1, 1), "set 0")
	r.step(message(0, 2, 1), "set 1")
	r.step(message(1, 2, 1), "stop 1", "stop 1", "ticket 2 to 0: packet", "ticket 2 to 1: packet")
	r.step(message(0, 3, 1e9), "set 1")
	r.step(message(1, 4, 1e9), "stop 1", "ticket 3 to 0: packet", "set 1") // rank 1 has left round 3 behind
	r.step(message(0, 4, 1e9), "stop 1", "stop 0", "ticket 4 to -1: planes 1")
	r.step(r.done(0, 4))
	r.step(r.done(1, 4), "set 0")
	r.step(message(0, 5, 1e9), "set 1")
	r.step(want(1, 6), "stop 1", "ticket 5 to 0: packet") // rank 1 will not join
	r.step(message(1, 5, 1e9), "ticket 5 to 1: packet")   // too late
}

// TestRoundsOfSome checks that after timed-out rounds the leader skips waiting, each time for more rounds.
func TestRoundsOfSome(t *testing.T) {
	r := newRig(t, 2, 2, 1)
	number := uint64(0)
	post := func(wants ...string) {
		t.Helper()
		number++
		for i := range wants {
			wants[i] = strings.ReplaceAll(wants[i], "N", fmt.Sprint(number))
		}
		r.step(message(0, number, 1e9), wants...)
	}
	for skip := 1; skip < 5000; skip = 2*skip + 1 {
		skip = min(skip, maxSkip-1)
		post("set 1")
		r.step(Event{Kind: Expired, Timer: RoundTimer},
			fmt.Sprintf("round %#x: packet planes, 1 of 2 ranks in 1s; the next %d rounds are not waited for", number, skip),
			"stop 1", fmt.Sprintf("ticket %d to 0: packet", number))
		for range skip {
			post("set 1", "stop 1", "ticket N to 0: packet")
		}
		if skip == maxSkip-1 {
			break
		}
	}
	post("set 1")
	r.step(message(1, number, 1e9), "stop 1", "stop 0", "acquire 1", "set 0")
}

// TestScripted checks that a script on streams runs under its plan on all planes, or fails.
func TestScripted(t *testing.T) {
	scripted := allReduce
	scripted.Scripted = true
	for name, k := range map[string]struct {
		planes planeset.Set
		plan   *planning.Agreed
		want   []string
	}{
		"all planes": {0b11, &planning.Agreed{}, []string{"ticket 1 to -1: planes 11 maps"}},
		"a plane is missing": {0b01, &planning.Agreed{}, []string{
			"plane p1 is out of service (plane 1 waits); going on with 1 of 2 planes",
			"fail: shim: AllReduce(count 10, type float, op sum), interposed is on streams with a plan for 2 planes, of " +
				"which 1 are in service: " + ocsctl.ErrPlaneDown.Error(),
		}},
		"no plan": {0b11, nil, []string{"fail: shim: arbiter: AllReduce(count 10, type float, op sum), interposed is " +
			"on streams without a plan: " + errdefs.ErrInternal.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, 1, 2)
			r.m.cfg.Scripted = func(calls.Shape) *planning.Agreed { return k.plan }
			r.step(Event{Kind: Want, Seq: 1, Shape: scripted}, "stop 0", "acquire 11")
			r.step(Event{Kind: Granted, Planes: k.planes}, append([]string{"stop 0"}, k.want...)...)
		})
	}
}
