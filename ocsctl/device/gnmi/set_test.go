package gnmi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"lightpath/internal/require"
	"lightpath/ocsctl/device/gnmi"
	"lightpath/plans/circuit"
)

func dial(t *testing.T, endpoint string) gpb.GNMIClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return gpb.NewGNMIClient(conn)
}

// bounded returns a context for what would wait forever where something is wrong.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func list() *gpb.Path { return &gpb.Path{Elem: []*gpb.PathElem{{Name: "connections"}}} }

func entry(name string) *gpb.Path {
	p := list()
	p.Elem = append(p.Elem, &gpb.PathElem{Name: "port-connection", Key: map[string]string{"name": name}})
	return p
}

func jsonAt(p *gpb.Path, text string) *gpb.Update {
	return &gpb.Update{Path: p, Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(text)}}}
}

func row(name, in, out string) *gpb.Update {
	return jsonAt(entry(name), `{"config":{"name":"`+name+`","input-port-name":"`+in+`","output-port-name":"`+out+`"}}`)
}

func get(t *testing.T, c gpb.GNMIClient, p *gpb.Path) string {
	t.Helper()
	r, err := c.Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{p}, Encoding: gpb.Encoding_JSON_IETF})
	require.NoError(t, err)
	return string(r.GetNotification()[0].GetUpdate()[0].GetVal().GetJsonIetfVal())
}

// TestTransaction: a Set is taken whole, deletions first, or not at all.
func TestTransaction(t *testing.T) {
	endpoint, d := serve(t, gnmi.Options{})
	c := dial(t, endpoint)
	set := func(want codes.Code, r *gpb.SetRequest, to circuit.Permutation) {
		t.Helper()
		before := d.Revision()
		answer, err := c.Set(t.Context(), r)
		if status.Code(err) != want {
			t.Fatalf("%v, want %v", err, want)
		}
		if n := len(r.GetDelete()) + len(r.GetReplace()) + len(r.GetUpdate()); err == nil && len(answer.GetResponse()) != n {
			t.Errorf("%d results of %d operations", len(answer.GetResponse()), n)
		}
		if got := d.Map(); !got.Equal(to) || err != nil && d.Revision() != before {
			t.Fatalf("the switch has %v, want %v", got, to)
		}
	}
	const dark = circuit.Dark
	straight := circuit.Permutation{0, 1, dark, dark}
	set(codes.OK, &gpb.SetRequest{Update: []*gpb.Update{row("a", "1A", "1B"), row("b", "2A", "2B")}}, straight)
	crossed := circuit.Permutation{1, 0, dark, dark}
	set(codes.OK, &gpb.SetRequest{
		Update:  []*gpb.Update{row("c", "1A", "2B")},
		Replace: []*gpb.Update{row("b", "2A", "1B")},
		Delete:  []*gpb.Path{entry("a")},
	}, crossed)
	for name, r := range map[string]*gpb.SetRequest{
		"a port in use":        {Update: []*gpb.Update{row("d", "3A", "1B")}, Delete: []*gpb.Path{entry("c")}},
		"the same port twice":  {Update: []*gpb.Update{row("d", "3A", "3B"), row("e", "4A", "3B")}},
		"no such port":         {Update: []*gpb.Update{row("d", "3A", "9B")}, Delete: []*gpb.Path{entry("c")}},
		"two egress ports":     {Update: []*gpb.Update{row("d", "3B", "4B")}},
		"half a row":           {Update: []*gpb.Update{jsonAt(entry("d"), `{"config":{"input-port-name":"3A"}}`)}},
		"rows without a list":  {Replace: []*gpb.Update{jsonAt(list(), `{"port-connection":["x"]}`)}},
		"somebody else's leaf": {Update: []*gpb.Update{jsonAt(entry("d"), `{"config":{"colour":"red"}}`)}},
		"read-only":            {Update: []*gpb.Update{jsonAt(entry("c"), `{"state":{"status":"CONNECTED"}}`)}},
	} {
		before := d.Revision()
		if _, err := c.Set(t.Context(), r); status.Code(err) != codes.InvalidArgument &&
			status.Code(err) != codes.FailedPrecondition || d.Revision() != before {
			t.Errorf("%s: %v, table changed %d times", name, err, d.Revision()-before)
		}
	}
	// A whole list: the switch keeps the circuits that the list repeats and removes all others.
	before := d.Revision()
	set(codes.OK, &gpb.SetRequest{Replace: []*gpb.Update{jsonAt(list(), `{"port-connection":[
		{"name":"b","config":{"input-port-name":"2A","output-port-name":"1B"}},
		{"name":"z","config":{"input-port-name":"4A","output-port-name":"4B"}}]}`)}}, circuit.Permutation{dark, 0, dark, 3})
	if n := d.Revision() - before; n != 2 {
		t.Errorf("the table changed %d times, want 2", n)
	}
	if text := get(t, c, list()); strings.Count(text, `"config"`) != 2 || !strings.Contains(text, `"name":"z"`) {
		t.Error(text)
	}
	set(codes.OK, &gpb.SetRequest{Delete: []*gpb.Path{list()}}, circuit.AllDark(4))
	set(codes.OK, &gpb.SetRequest{Delete: []*gpb.Path{entry("never")}}, circuit.AllDark(4))
}

// subscription is a request for one subscription.
func subscription(s *gpb.Subscription) *gpb.SubscribeRequest {
	list := &gpb.SubscriptionList{Subscription: []*gpb.Subscription{s}}
	return &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}
}

// TestAcceptInvalid: what cannot be made is configured, told as INVALID, and goes when it is deleted.
func TestAcceptInvalid(t *testing.T) {
	endpoint, d := serve(t, gnmi.Options{AcceptInvalid: true})
	c := dial(t, endpoint)
	stream, err := c.Subscribe(bounded(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(subscription(&gpb.Subscription{Path: list(), Mode: gpb.SubscriptionMode_ON_CHANGE})))
	until := func(word string) {
		t.Helper()
		for {
			m, err := stream.Recv()
			require.NoError(t, err)
			if strings.Contains(m.String(), word) {
				return
			}
		}
	}
	until("sync_response")
	for _, u := range []*gpb.Update{row("a", "1A", "1B"), row("b", "2A", "1B"), row("c", "7A", "7B")} {
		if _, err := c.Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{u}}); err != nil {
			t.Fatal(err)
		}
	}
	until("no such ports")
	only := circuit.Permutation{0, circuit.Dark, circuit.Dark, circuit.Dark}
	if text := get(t, c, list()); strings.Count(text, "INVALID") != 2 || !strings.Contains(text, "another circuit") ||
		!d.Map().Equal(only) {
		t.Fatalf("%s; the switch has %v", text, d.Map())
	}
	if _, err := c.Set(t.Context(), &gpb.SetRequest{Delete: []*gpb.Path{entry("b"), entry("c")}}); err != nil {
		t.Fatal(err)
	}
	until("delete")
	if text := get(t, c, list()); strings.Contains(text, "INVALID") || !d.Map().Equal(only) {
		t.Fatalf("%s; the switch has %v", text, d.Map())
	}
}

// arbitration is a request that only arbitrates.
func arbitration(a *gnmi_ext.MasterArbitration) *gpb.SetRequest {
	return &gpb.SetRequest{Extension: []*gnmi_ext.Extension{
		{Ext: &gnmi_ext.Extension_MasterArbitration{MasterArbitration: a}},
	}}
}

// TestArbitration: of every role, the master with the highest 128-bit id seen so far writes.
func TestArbitration(t *testing.T) {
	endpoint, _ := serve(t, gnmi.Options{})
	c := dial(t, endpoint)
	for i, x := range []struct {
		role      string
		high, low uint64
		want      codes.Code
	}{
		{"", 0, 5, codes.OK}, {"", 0, 4, codes.PermissionDenied}, {"", 1, 0, codes.OK},
		{"", 0, ^uint64(0), codes.PermissionDenied},
		{"", 0, 0, codes.PermissionDenied}, {"backup", 0, 1, codes.OK}, {"", 1, 0, codes.OK},
	} {
		_, err := c.Set(t.Context(), arbitration(&gnmi_ext.MasterArbitration{
			Role: &gnmi_ext.Role{Id: x.role}, ElectionId: &gnmi_ext.Uint128{High: x.high, Low: x.low},
		}))
		if status.Code(err) != x.want {
			t.Errorf("%d: %+v: %v", i, x, err)
		}
	}
	if _, err := c.Set(t.Context(), &gpb.SetRequest{}); err != nil {
		t.Errorf("without arbitration: %v", err)
	}
	_, err := c.Set(t.Context(), arbitration(&gnmi_ext.MasterArbitration{}))
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("without an id: %v", err)
	}
}

// TestSONiC: what SONiC's server refuses.
func TestSONiC(t *testing.T) {
	endpoint, _ := serve(t, gnmi.Options{Dialect: "sonic-db"})
	c := dial(t, endpoint)
	at := func(db string) *gpb.Path {
		return &gpb.Path{Origin: "sonic-db", Elem: []*gpb.PathElem{{Name: db}, {Name: "localhost"},
			{Name: "OCS_CROSS_CONNECT"}}}
	}
	_, across := c.Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{at("CONFIG_DB"), at("STATE_DB")}})
	_, byRole := c.Set(t.Context(),
		&gpb.SetRequest{Extension: []*gnmi_ext.Extension{{Ext: &gnmi_ext.Extension_MasterArbitration{
			MasterArbitration: &gnmi_ext.MasterArbitration{Role: &gnmi_ext.Role{}, ElectionId: &gnmi_ext.Uint128{Low: 1}},
		}}}})
	for _, err := range []error{across, byRole} {
		if status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
	}
}

// TestGetForms: types, encodings and paths of a Get.
func TestGetForms(t *testing.T) {
	endpoint, _ := serve(t, gnmi.Options{})
	c := dial(t, endpoint)
	if _, err := c.Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{row("a", "1A", "1B")}}); err != nil {
		t.Fatal(err)
	}
	all := &gpb.Path{Elem: []*gpb.PathElem{{Name: "components"}, {Name: "component", Key: map[string]string{"name": "*"}}}}
	rows := &gpb.Path{Elem: []*gpb.PathElem{{Name: "connections"}, {Name: "port-connection"}}}
	leaf := &gpb.Path{Elem: append(entry("a").Elem, &gpb.PathElem{Name: "config"},
		&gpb.PathElem{Name: "output-port-name"})}
	for name, x := range map[string]struct {
		r          *gpb.GetRequest
		code       codes.Code
		has, lacks string
	}{
		"configuration": {&gpb.GetRequest{Path: []*gpb.Path{list()}, Type: gpb.GetRequest_CONFIG}, codes.OK, "config",
			"state"},
		"state": {&gpb.GetRequest{Path: []*gpb.Path{list()}, Type: gpb.GetRequest_STATE}, codes.OK,
			"CONNECT", "config"},
		"leaf by leaf": {&gpb.GetRequest{Path: []*gpb.Path{list()}, Encoding: gpb.Encoding_PROTO}, codes.OK,
			"string_val", "json"},
		"one leaf":      {&gpb.GetRequest{Path: []*gpb.Path{leaf}}, codes.OK, `\"1B\"`, "1A"},
		"wildcard":      {&gpb.GetRequest{Path: []*gpb.Path{all}}, codes.OK, "4B", "json"},
		"without a key": {&gpb.GetRequest{Path: []*gpb.Path{rows}}, codes.OK, "1B", "json"},
		"another table": {&gpb.GetRequest{Path: []*gpb.Path{{Elem: []*gpb.PathElem{{Name: "interfaces"}}}}}, codes.NotFound,
			"", ""},
		"another origin": {&gpb.GetRequest{Path: []*gpb.Path{{Origin: "cli"}}}, codes.InvalidArgument, "", ""},
		"odd encoding": {&gpb.GetRequest{Path: []*gpb.Path{list()}, Encoding: gpb.Encoding_ASCII}, codes.Unimplemented,
			"", ""},
		"prefix and path": {&gpb.GetRequest{Prefix: list(), Path: []*gpb.Path{{Elem: entry("a").Elem[1:]}}},
			codes.OK, "1B", ""},
	} {
		r, err := c.Get(t.Context(), x.r)
		text := strings.ReplaceAll(r.String(), "  ", " ")
		if status.Code(err) != x.code || !strings.Contains(text, x.has) || x.lacks != "" && strings.Contains(text, x.lacks) {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
}

// TestSample: values are told again and again, power among them.
func TestSample(t *testing.T) {
	endpoint, _ := serve(t, gnmi.Options{})
	stream, err := dial(t, endpoint).Subscribe(bounded(t))
	require.NoError(t, err)
	port := &gpb.Path{Elem: []*gpb.PathElem{{Name: "components"},
		{Name: "component", Key: map[string]string{"name": "2B"}}}}
	require.NoError(t, stream.Send(subscription(&gpb.Subscription{
		Path: port, Mode: gpb.SubscriptionMode_SAMPLE, SampleInterval: uint64(15 * time.Millisecond),
	})))
	for told := 0; told < 3; {
		m, err := stream.Recv()
		require.NoError(t, err)
		if text := m.String(); m.GetUpdate() != nil {
			if told++; !strings.Contains(text, "output-optical-power") || strings.Contains(text, "1B") {
				t.Fatal(text)
			}
		}
	}
}
