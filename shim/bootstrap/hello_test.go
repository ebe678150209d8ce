package bootstrap

import (
	"encoding/json"
	"net"
	"reflect"
	"testing"

	"lightpath/internal/assert"
	"lightpath/shim/control"
	"lightpath/shim/settings"
)

// FuzzHello: a table decodes to what was encoded, or not at all.
func FuzzHello(f *testing.F) {
	good, _ := json.Marshal([]Hello{{Rank: 1, Ranks: 2, Name: "a", Version: Version}})
	f.Add(good)
	f.Add([]byte(`[{"rank":1e9}]`))
	f.Add([]byte(`{"unknown":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var table []Hello
		if control.DecodeStrict(in, &table) != nil {
			return
		}
		text, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		var again []Hello
		if err := control.DecodeStrict(text, &again); err != nil || !reflect.DeepEqual(again, table) && len(table) > 0 {
			t.Fatalf("%s became %+v, %v", in, again, err)
		}
	})
}

// FuzzHelloOfAnyVersion: a hello is read, refused by its version, or damage.
func FuzzHelloOfAnyVersion(f *testing.F) {
	good, _ := json.Marshal(Hello{Rank: 1, Ranks: 2, Name: "a", Version: Version})
	f.Add(good)
	f.Add([]byte(`{"version":"2","rank":-1,"colour":{}}`))
	f.Add([]byte(`{"version":5}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var h Hello
		if err := decodeHello(in, &h); err != nil {
			return
		}
		if h.Version != Version && (h.Settings != "" || h.Control != "" || len(h.Version) > 64 || len(h.Name) > 64) {
			t.Fatalf("%s became %+v", in, h)
		}
	})
}

// TestRanksThatDoNotFit: what ranks must have in common, the refusal names on both sides.
func TestRanksThatDoNotFit(t *testing.T) {
	first := Hello{Ranks: 2, Name: "a", PID: 1, Version: Version, Fabric: "f00d",
		Settings: (&settings.Config{Transport: "auto", Planes: 1}).Agreed()}
	current := settings.Config{Transport: "auto", Planes: 1, Plan: settings.Plan{Current: true}}
	for name, c := range map[string]struct {
		edit func(*Hello)
		says []string // none: they fit
	}{
		"fits":      {func(*Hello) {}, nil},
		"fabric":    {func(h *Hello) { h.Fabric = "beef" }, []string{"has fabric f00d", "has beef"}},
		"no fabric": {func(h *Hello) { h.Fabric = "" }, []string{"has fabric f00d", "has none"}},
		"initial": {func(h *Hello) {
			h.Settings = current.Agreed()
		}, []string{"is set to LIGHTPATH_TRANSPORT=auto", "LIGHTPATH_PLAN_INITIAL=current"}},
		"version":    {func(h *Hello) { h.Version = "0.0.1" }, []string{Version, "0.0.1"}},
		"rank twice": {func(h *Hello) { h.Rank = 0 }, []string{"both claim to be rank 0"}},
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
			clear(g.conns) // no rank is there to be told
			g.admit(&second)
			if (g.refusal == "") != (c.says == nil) {
				t.Fatalf("refusal %q", g.refusal)
			}
			assert.Contains(t, g.refusal, c.says...)
		})
	}
}
