package gnmi

import (
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver/gnmi/dialect"
)

// FuzzSet: whatever message a client sends, it is answered with a status, and the table stays a
// matching that only a Set which was taken has changed.
func FuzzSet(f *testing.F) {
	add := func(which int, accept bool, r *gpb.SetRequest) {
		data, err := proto.Marshal(r)
		require.NoError(f, err)
		f.Add(which, accept, data)
	}
	row := func(text string, elems ...*gpb.PathElem) *gpb.Update {
		return &gpb.Update{Path: &gpb.Path{Elem: elems},
			Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(text)}}}
	}
	list := &gpb.PathElem{Name: "connections"}
	entry := &gpb.PathElem{Name: "port-connection", Key: map[string]string{"name": "a"}}
	good := row(`{"config":{"name":"a","input-port-name":"1A","output-port-name":"2B"}}`, list, entry)
	add(0, false, &gpb.SetRequest{Update: []*gpb.Update{good}})
	add(0, true, &gpb.SetRequest{Replace: []*gpb.Update{row(`{"port-connection":[{}]}`, list)},
		Delete: []*gpb.Path{{Elem: []*gpb.PathElem{list, entry}}, nil, {}}})
	add(1, false, &gpb.SetRequest{Prefix: &gpb.Path{Target: "x", Origin: "sonic_db"}, Update: []*gpb.Update{{}, nil}})
	add(2, true, &gpb.SetRequest{UnionReplace: []*gpb.Update{good}})
	f.Fuzz(func(t *testing.T, which int, accept bool, data []byte) {
		var r gpb.SetRequest
		if proto.Unmarshal(data, &r) != nil {
			t.Skip() // gRPC refuses it
		}
		d, err := device.New(device.Config{Ports: 4, Preset: "plzt-ns", In: device.Suffixed("A"), Out: device.Suffixed("B")})
		require.NoError(t, err)
		defer d.Close()
		names := dialect.Names()
		words, err := dialect.Lookup(names[uint(which)%uint(len(names))])
		require.NoError(t, err)
		s := &server{
			d: d, words: words, o: Options{AcceptInvalid: accept},
			names: make(map[pair]string), invalid: make(map[string]invalid), masters: make(map[string]election),
			edited: make(chan struct{}),
		}
		s.label()
		_, err = s.Set(t.Context(), &r)
		if _, ok := status.FromError(err); !ok {
			t.Errorf("not a status: %v", err)
		}
		if bad := d.Map().Validate(4); bad != nil || err != nil && d.Revision() != 0 {
			t.Errorf("%v; error %v, and the table changed %d times", bad, err, d.Revision())
		}
	})
}
