package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"

	"lightpath/internal/brief"
	"lightpath/internal/require"
)

func jsonUpdate(path *gpb.Path, text string) *gpb.Update {
	return &gpb.Update{Path: path, Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(text)}}}
}

// TestRoundTrip: circuits written entry by entry, or as one JSON value of the whole list, read as
// they were.
func TestRoundTrip(t *testing.T) {
	for _, name := range Names() {
		d, err := Lookup(name)
		require.NoError(t, err)
		single, whole := NewStore(d), NewStore(d)
		var leaves []Leaf
		for i := range 3 {
			v := d.Vars("", fmt.Sprint(1+i), fmt.Sprint(9-i))
			value, err := d.EntryValue(&d.Config, v)
			require.NoError(t, err)
			n := &gpb.Notification{Update: []*gpb.Update{{Path: d.EntryPath(&d.Config, v), Val: value}}}
			require.NoError(t, single.Notify(n))
			leaves = append(leaves, d.Config.EntryLeaves(v)...)
		}
		value, err := d.JSON(d.Config.Read, leaves)
		require.NoError(t, err)
		require.NoError(t, whole.Notify(&gpb.Notification{Update: []*gpb.Update{{Path: d.ReadPath(&d.Config),
			Val: value}}}))
		for _, s := range []*Store{single, whole} {
			all := s.Circuits()
			if len(all) != 3 {
				t.Fatalf("%s: %d circuits of %s", name, len(all), value)
			}
			for i, c := range all {
				if c.In != d.Normal(fmt.Sprint(1+i)) || c.Out != d.Normal(fmt.Sprint(9-i)) || !c.Configured || c.Reported {
					t.Errorf("%s: %d: %+v", name, i, c)
				}
			}
			s.Delete(all[1].Path)
			if left := s.Circuits(); len(left) != 2 || left[1].In != d.Normal("3") {
				t.Errorf("%s: after deletion %+v", name, left)
			}
			s.Delete(d.ReadPath(&d.Config).GetElem())
			if left := s.Circuits(); len(left) != 0 {
				t.Errorf("%s: after deletion of all %+v", name, left)
			}
		}
	}
}

// TestForeignJSON reads what other servers may say of the same: no prefixes of modules, the JSON
// value of an entry, leaf by leaf, names of rows that are not ours, words with a module.
func TestForeignJSON(t *testing.T) {
	d, err := Lookup("ocp")
	require.NoError(t, err)
	s := NewStore(d)
	entry := &gpb.Path{Elem: []*gpb.PathElem{{Name: "connections"},
		{Name: "port-connection", Key: map[string]string{"name": "b"}}}}
	n := &gpb.Notification{Update: []*gpb.Update{
		jsonUpdate(&gpb.Path{}, `{"connections":{"port-connection":[{"name":"a",
			"config":{"name":"a","input-port-name":"1","output-port-name":"2"},
			"state":{"status":"ocp-x:connected","last-updated":"12","x":[1,2]},"more":[{"unknown":1}]}]},
			"other":{"deep":{"list":[{"a":1}]}}}`),
		jsonUpdate(entry, `{"m:config":{"m:name":"b","m:input-port-name":"3","m:output-port-name":"4"}}`),
		{Path: &gpb.Path{Elem: append(entry.Elem, &gpb.PathElem{Name: "state"}, &gpb.PathElem{Name: "status"})},
			Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: "INVALID"}}},
	}}
	require.NoError(t, s.Notify(n))
	all := s.Circuits()
	if len(all) != 2 || all[0].In != "1" || all[0].State != Up || !all[0].Reported || all[1].Out != "4" ||
		all[1].State != Invalid || all[1].Reported {
		t.Fatalf("%+v", all)
	}
	s.Delete(append(entry.Elem, &gpb.PathElem{Name: "config"}))
	if all = s.Circuits(); len(all) != 2 || all[1].Configured {
		t.Fatalf("without b's configuration: %+v", all)
	}
}

func TestBadValues(t *testing.T) {
	d, err := Lookup("ocp")
	require.NoError(t, err)
	root := d.ReadPath(&d.Config)
	for name, u := range map[string]*gpb.Update{
		"no JSON":        jsonUpdate(root, `{`),
		"two values":     jsonUpdate(root, `{} {}`),
		"entry, no key":  jsonUpdate(root, `{"port-connection":[{"config":{}}]}`),
		"entry, a word":  jsonUpdate(root, `{"port-connection":["a"]}`),
		"too deep":       jsonUpdate(root, strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100)),
		"another origin": jsonUpdate(&gpb.Path{Origin: "cli"}, `{}`),
		"no value":       {Path: root},
		"list, no name":  jsonUpdate(&gpb.Path{}, `[1]`),
	} {
		if leaves, err := d.Leaves(nil, u); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v, %v", name, leaves, err)
		}
	}
}

// FuzzLeaves: whatever a peer says, it is read or refused, and what is read can be written again.
func FuzzLeaves(f *testing.F) {
	f.Add(0, "connections", `{"port-connection":[{"name":"a","config":{"input-port-name":"1"}}]}`)
	f.Add(1, "CONFIG_DB", `{"localhost":{"OCS_CROSS_CONNECT":{"1A-2B":{"a_side":"1A","b_side":"2B"}}}}`)
	f.Add(2, "optical-switch", `{"port-connections":{"port-connection":[
		{"slot":1,"port":2,"config":{"peer-slot":1,"peer-port":3}}]}}`)
	f.Add(2, "", `{"a":[[]],"b":null,"c":1e999}`)
	f.Fuzz(func(t *testing.T, which int, name, text string) {
		d, err := Lookup(names[uint(which)%uint(len(names))])
		require.NoError(t, err)
		path := &gpb.Path{Origin: d.Origin}
		if name != "" {
			path.Elem = []*gpb.PathElem{{Name: name}}
		}
		leaves, err := d.Leaves(nil, jsonUpdate(path, text))
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		s := NewStore(d)
		s.Update(leaves)
		for _, c := range s.Circuits() {
			value, err := d.EntryValue(&d.Config, d.Vars("", c.In, c.Out))
			if err != nil || !json.Valid(value.GetJsonIetfVal()) {
				t.Fatalf("%+v: %v, %v", c, value, err)
			}
			s.Delete(c.Path)
		}
		s.Ports()
	})
}

// FuzzNotify: whatever message a peer sends, it is folded into a store or refused; nothing of it comes
// out again that is not text of bounded length where it is said to people.
func FuzzNotify(f *testing.F) {
	add := func(which int, n *gpb.Notification) {
		data, err := proto.Marshal(n)
		require.NoError(f, err)
		f.Add(which, data)
	}
	connections := &gpb.Path{Elem: []*gpb.PathElem{{Name: "connections"}}}
	add(0, &gpb.Notification{Update: []*gpb.Update{jsonUpdate(connections, `{"port-connection":[{"name":"a"}]}`)},
		Delete: []*gpb.Path{connections, nil}})
	add(1, &gpb.Notification{Prefix: &gpb.Path{Origin: "sonic_db", Target: "STATE_DB"}, Update: []*gpb.Update{{}, nil}})
	add(2, &gpb.Notification{Update: []*gpb.Update{{Path: connections,
		Val: &gpb.TypedValue{Value: &gpb.TypedValue_LeaflistVal{}}}}})
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		var n gpb.Notification
		if proto.Unmarshal(data, &n) != nil {
			t.Skip() // gRPC refuses it
		}
		d, err := Lookup(names[uint(which)%uint(len(names))])
		require.NoError(t, err)
		s := NewStore(d)
		if err := s.Notify(&n); err != nil {
			if !errors.Is(err, ErrMessage) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		for _, c := range s.Circuits() {
			s.Delete(c.Path)
		}
		for _, p := range s.Ports() {
			if word := brief.Line(p.Word); len(word) > 200 || strings.ContainsAny(word, "\r\n") {
				t.Errorf("%q", word)
			}
		}
		for _, table := range d.tables() {
			s.Records(table)
		}
	})
}
