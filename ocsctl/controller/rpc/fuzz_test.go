package rpc

import (
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

func seed(f *testing.F, all ...proto.Message) {
	for _, m := range all {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xff})
}

// FuzzUp: whatever a rank sends is done or refused, in one line; held planes are those of the
// fabric.
func FuzzUp(f *testing.F) {
	seed(f,
		&ocspb.Up{Message: &ocspb.Up_Hello{Hello: &ocspb.Hello{Protocol: ProtocolVersion, Port: 2,
			Held: []*ocspb.Lease{{Holder: 1, Mask: 1}}}}},
		&ocspb.Up{Message: &ocspb.Up_Post{Post: &ocspb.Post{Plane: 1, Target: []int32{1, 2, 3, 0}}}},
		&ocspb.Up{Message: &ocspb.Up_Acquire{Acquire: &ocspb.Acquire{Id: 1, Lease: &ocspb.Lease{Mask: 3, Holder: 1,
			Ports: []uint32{0, 1}, Circuits: []*ocspb.RankMap{{To: []int32{1, 0}}, {To: []int32{-1, 1}}}}}}},
		&ocspb.Up{Message: &ocspb.Up_Release{Release: &ocspb.Release{Mask: 3, Holder: 1}}},
	)
	core := fake.New("a", 1, 4, 2)
	s := &Server{o: ServerOptions{Ports: 4, Planes: make([]ocsctl.PlaneInfo, 2), Name: "a", Version: "1.0.0"}}
	f.Fuzz(func(t *testing.T, b []byte) {
		up := new(ocspb.Up)
		if proto.Unmarshal(b, up) != nil {
			return
		}
		if h := up.GetHello(); h != nil {
			oneLiner(t, s.check(h))
		}
		x := newSession(s, sessionID{}, 1, "")
		x.attachment = core.Onlooker(x)
		for range 2 {
			oneLiner(t, x.apply(up))
		}
		for _, mask := range x.held {
			if mask == 0 || mask>>2 != 0 {
				t.Fatalf("holds %#x", mask)
			}
		}
	})
}

// FuzzDown: whatever a controller sends, the maps that a rank sees are permutations.
func FuzzDown(f *testing.F) {
	seed(f,
		&ocspb.Down{Changed: []*ocspb.Changed{{Plane: 1, Epoch: 3, Map: []int32{1, 2, 3, 0}}}},
		&ocspb.Down{Changed: []*ocspb.Changed{{Epoch: 3, Port: []uint32{0, 1}, To: []int32{1, 0},
			Fault: toFault(ocsctl.ErrConflict)}}},
		&ocspb.Down{Refused: []*ocspb.Refused{{Plane: 1, Holder: 7, Fault: toFault(ocsctl.ErrNotHolder)}, {Plane: 9}, nil}},
		&ocspb.Down{Granted: []*ocspb.Granted{{Id: 1, Mask: 1}, {Id: 2, Fault: toFault(ocsctl.ErrPlaneDown)}}},
		&ocspb.Down{Welcome: &ocspb.Welcome{Protocol: ProtocolVersion, Ports: 4, Planes: make([]*ocspb.PlaneInfo, 2),
			State: []*ocspb.Changed{{Map: []int32{1, 2, 3, 0}}, {Plane: 1, Map: []int32{-1, -1, -1, -1}}}}},
	)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := new(ocspb.Down)
		if proto.Unmarshal(b, d) != nil {
			return
		}
		c := &Client{numPorts: 4, planes: make([]atomic.Pointer[planeView], 2), refused: make([]ocsctl.Refusals, 2),
			posts: make([][]post, 2), held: map[uint64]heldLease{}}
		c.requests = map[uint64]*pendingAcquire{1: {lease: ocsctl.Lease{Mask: 1, Holder: 1}, answer: make(chan grant, 1)},
			2: {lease: ocsctl.Lease{Mask: 3, Holder: 1}, answer: make(chan grant, 1)}}
		for j := range c.planes {
			c.planes[j].Store(&planeView{PlaneState: ocsctl.PlaneState{Map: circuit.Shift(4, 1)}})
			c.posts[j] = []post{{1, 7, circuit.Shift(4, 2)}}
		}
		if w := d.GetWelcome(); w != nil {
			oneLiner(t, c.welcome(w))
			oneLiner(t, (&Client{held: map[uint64]heldLease{}}).begin(w))
		}
		oneLiner(t, c.takeOver(d))
		for j := range c.planes {
			st := c.State(j)
			if err := st.Map.Validate(4); err != nil {
				t.Fatalf("plane %d: %v", j, err)
			}
			_, err := c.Poll(j)
			oneLiner(t, err)
			oneLiner(t, c.Refused(j, 7))
		}
		for holder, l := range c.held {
			if l.Mask == 0 || l.Mask>>2 != 0 {
				t.Fatalf("holder %d has %#x", holder, l.Mask)
			}
		}
	})
}

// FuzzReports: what operators are told is a snapshot and an event, or an error.
func FuzzReports(f *testing.F) {
	seed(f, &ocspb.Snapshot{Planes: []*ocspb.PlaneSnapshot{{Map: []int32{1, 0}, Holders: []*ocspb.Lease{{}}}}},
		&ocspb.Event{From: []int32{1, 0}, To: []int32{0, 0}})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s ocspb.Snapshot
		if proto.Unmarshal(b, &s) == nil {
			got, err := fromSnapshot(&s)
			oneLiner(t, err)
			for _, p := range got.Planes {
				if err := p.Map.Validate(len(p.Map)); err != nil {
					t.Fatal(err)
				}
			}
		}
		var e ocspb.Event
		if proto.Unmarshal(b, &e) == nil {
			_, err := fromEvent(&e)
			oneLiner(t, err)
		}
	})
}

func oneLiner(t *testing.T, err error) {
	t.Helper()
	if err != nil && (err.Error() == "" || strings.ContainsAny(err.Error(), "\n\r\x1b")) {
		t.Fatalf("%q", err)
	}
}
