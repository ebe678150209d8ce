package shim

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/shim/control"
	"lightpath/shim/settings"
)

// TestVersionSkew: ranks of different versions refuse each other by name, also where one says
// things that the other has never heard of.
func TestVersionSkew(t *testing.T) {
	for name, body := range map[string]string{
		"same fields":    `{"rank":1,"ranks":2,"name":"elsewhere","pid":7,"version":"9.9.9"}`,
		"unknown fields": `{"rank":1,"ranks":2,"name":"elsewhere","pid":7,"version":"9.9.9","colour":"red"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TIMEOUT", "50s")
			id, err := NewUniqueID()
			if err != nil {
				t.Fatal(err)
			}
			addr, sec, err := parseID(&id)
			if err != nil {
				t.Fatal(err)
			}
			errs := concurrently(t, 2, func(r int) error {
				if r == 0 {
					_, err := Init([]InitArgs{{ID: id, Ranks: 2}})
					return err
				}
				conn, err := control.Dial(t.Context(), addr, sec, time.Now().Add(50*time.Second), true)
				if err != nil {
					return err
				}
				defer conn.Close()
				if _, err := conn.Write(control.Append(nil, &control.Message{Kind: control.MsgHello, From: 1, Body: []byte(body)})); err != nil {
					return err
				}
				var m control.Message
				if err := control.Read(conn, &m); err != nil {
					return err
				}
				_, _, err = readTable(&m, &hello{Rank: 1, Ranks: 2})
				return err
			})
			for _, err := range errs {
				wantError(t, err, ErrInvalidUsage, "rank 1 (elsewhere, process 7) runs", "9.9.9", Version)
			}
		})
	}
}

// FuzzHelloOfAnyVersion: a hello is read, refused by its version, or damage.
func FuzzHelloOfAnyVersion(f *testing.F) {
	good, _ := json.Marshal(hello{Rank: 1, Ranks: 2, Name: "a", Version: Version})
	f.Add(good)
	f.Add([]byte(`{"version":"2","rank":-1,"colour":{}}`))
	f.Add([]byte(`{"version":5}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var h hello
		if err := decodeHello(in, &h); err != nil {
			return
		}
		if h.Version != Version && (h.Settings != "" || h.Control != "" || len(h.Version) > 64 || len(h.Name) > 64) {
			t.Fatalf("%s became %+v", in, h)
		}
	})
}

// TestPlansOfAnotherPlanner: a plan that another version of the planners has made is not used.
func TestPlansOfAnotherPlanner(t *testing.T) {
	cfg, fab, store := warmSetup(t)
	call := CallShape{Collective: kinds[CallAllReduce].collective, Count: 1000}
	made := warm(t, cfg, fab, 4, store, call)
	old := made.Entry.Key
	old.PlannerVersion = planner.Version - 1
	if _, err := store.Put(old, made.Entry.Span); err != nil {
		t.Fatal(err)
	}
	if err := store.Remove(made.Entry.Name()); err != nil {
		t.Fatal(err)
	}
	other, err := cache.Open(store.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if again := warm(t, cfg, fab, 4, other, call); again.Cached {
		t.Error("the plan of another planner was used")
	}
	if n := len(planFiles(t, store.Dir())); n != 2 {
		t.Errorf("%d files in the cache", n)
	}
}

// TestPlanesThatAreNotInterfaces: whoever asks for circuits that are real gets them or an error.
func TestPlanesThatAreNotInterfaces(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "ebpf")
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	refused := func(says string) {
		t.Helper()
		id, err := NewUniqueID()
		if err != nil {
			t.Fatal(err)
		}
		_, err = Init([]InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}})
		wantError(t, err, ErrInvalidUsage, "LIGHTPATH_TRANSPORT=ebpf", says)
	}
	refused("LIGHTPATH_FABRIC names no fabric")
	lightFabric(t, 2, 2, nil)
	refused("in the memory of its controller")
}

// TestFabricsThatCannotBeUsed: the error names the plane and what is missing.
func TestFabricsThatCannotBeUsed(t *testing.T) {
	driven := func(f *fabric.Fabric, driver string) {
		f.OCS[0].Driver, f.OCS[0].Endpoint = driver, "10.0.0.1:5025"
		for j := range f.Planes {
			f.Planes[j].Ports = []string{fmt.Sprint(2*j + 1), fmt.Sprint(2*j + 2)}
		}
	}
	for name, c := range map[string]struct {
		edit func(*fabric.Fabric)
		says string // "": it is accepted
	}{
		"as it is":            {func(*fabric.Fabric) {}, ""},
		"real, no controller": {func(f *fabric.Fabric) { driven(f, fabric.DriverGNMI) }, "plane p0: a switch with driver gnmi is moved by a controller"},
		"real, controlled": {func(f *fabric.Fabric) {
			f.Controller.Endpoints = []string{f.OCS[0].Endpoint}
			driven(f, fabric.DriverPolatis)
		}, ""},
		"no controller there": {func(f *fabric.Fabric) { f.Controller.Endpoints = []string{"unix:/nonexistent/ocsd.sock"} }, "no switch at /nonexistent/ocsd.sock"},
		"controller elsewhere": {func(f *fabric.Fabric) {
			f.Controller.Endpoints = []string{"unix:/nonexistent/ocsd.sock", "127.0.0.1:1"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			lightFabric(t, 2, 2, c.edit)
			_, err := loadFabric(&settings.Config{Fabric: os.Getenv("LIGHTPATH_FABRIC")})
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

// TestRanksThatDoNotFit: what ranks must have in common, the refusal names on both sides.
func TestRanksThatDoNotFit(t *testing.T) {
	first := hello{Ranks: 2, Name: "a", PID: 1, Version: Version, Fabric: "f00d", Settings: (&settings.Config{Transport: "auto", Planes: 1}).Agreed()}
	byTime := settings.Config{Transport: "auto", Planes: 1, BarrierTime: true, BarrierSlack: settings.Slack{Part: 0.2, Fixed: time.Millisecond}}
	for name, c := range map[string]struct {
		edit func(*hello)
		says []string // none: they fit
	}{
		"fits":       {func(*hello) {}, nil},
		"fabric":     {func(h *hello) { h.Fabric = "beef" }, []string{"has fabric f00d", "has beef"}},
		"no fabric":  {func(h *hello) { h.Fabric = "" }, []string{"has fabric f00d", "has none"}},
		"barrier":    {func(h *hello) { h.Settings = byTime.Agreed() }, []string{"is set to LIGHTPATH_TRANSPORT=auto", "LIGHTPATH_BARRIER=time LIGHTPATH_BARRIER_SLACK=20%+1ms"}},
		"version":    {func(h *hello) { h.Version = "0.0.1" }, []string{Version, "0.0.1"}},
		"rank twice": {func(h *hello) { h.Rank = 0 }, []string{"both claim to be rank 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			second := first
			second.Rank, second.Name, second.PID = 1, "b", 2
			c.edit(&second)
			a := first
			g := gathering{conns: map[int]net.Conn{}}
			g.admit(&a)
			if g.refusal != "" {
				t.Fatal(g.refusal)
			}
			clear(g.conns) // nobody is there to be told
			g.admit(&second)
			if (g.refusal == "") != (c.says == nil) {
				t.Fatalf("refusal %q", g.refusal)
			}
			for _, want := range c.says {
				if !strings.Contains(g.refusal, want) {
					t.Errorf("%q does not say %q", g.refusal, want)
				}
			}
		})
	}
}
