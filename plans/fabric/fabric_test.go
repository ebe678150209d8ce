package fabric

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

func TestLoad(t *testing.T) {
	f, err := Load("testdata/two-planes.yaml")
	require.NoError(t, err)
	want := &Fabric{
		Version: 1, Name: "two-planes", Ranks: 4,
		Planes: []Plane{
			{Name: "p0", Bandwidth: 2e9, OCS: "ocs0", Ports: []string{"1", "2", "3", "4"}, Interface: "eth2"},
			{Name: "p1", Bandwidth: 2e9, OCS: "ocs0", Ports: []string{"1", "2", "x3", "x4"}, HCA: "mlx5_0:1:0:0"},
		},
		OCS: []OCS{{Name: "ocs0", Driver: DriverEmulator, Endpoint: "unix:/run/ocsd.sock",
			Reconfig: 200 * time.Microsecond}},
		Costs:    Costs{Alpha: 20 * time.Microsecond, Hop: 500},
		Circuits: plans.Duplex, Forwarding: true, Pods: [][]int{{0, 1}, {2, 3}},
	}
	if !reflect.DeepEqual(f, want) {
		t.Fatalf("got %+v", f)
	}
	problem := &plans.Problem{Version: 1, Ranks: 4, Planes: 2, BandwidthGbps: 2, AlphaUS: 20, HopUS: 0.5, ReconfigUS: 200,
		Forwarding: true, Circuits: plans.Duplex}
	if got := f.Problem(); !reflect.DeepEqual(got, problem) {
		t.Fatalf("problem %+v", got)
	}
	if !f.Optical() || f.Switch(1).Name != "ocs0" || f.Host(0) != nil {
		t.Fatal("accessors")
	}
}

func TestHosts(t *testing.T) {
	f, err := Load("testdata/hosts.yaml")
	require.NoError(t, err)
	if f.Ranks != 4 || f.Host(2).Name != "a" || f.Host(3).Name != "b" || f.Host(4) != nil {
		t.Fatalf("%+v", f)
	}
	p := f.Problem()
	if f.Packets != (PacketPlanes{Bandwidth: 100e9, Alpha: 10 * time.Microsecond}) {
		t.Errorf("packet planes %+v", f.Packets)
	}
	if p.ReconfigUS != 25300 || p.ReconfigPerPort != 20 || p.BandwidthGbps != 400 {
		t.Fatalf("problem %+v", p)
	}
	require.NoError(t, p.Validate())
}

func TestPacketFabric(t *testing.T) {
	f, err := Load("testdata/packet.yaml")
	require.NoError(t, err)
	if f.Optical() || f.Switch(0) != nil {
		t.Fatalf("%+v", f)
	}
}

func TestEncode(t *testing.T) {
	for _, name := range []string{"two-planes", "hosts", "packet"} {
		f, err := Load("testdata/" + name + ".yaml")
		require.NoError(t, err)
		if name == "two-planes" {
			f.PinnedBy = "a job"
		}
		back, err := Decode(f.Encode())
		if err != nil || !reflect.DeepEqual(f, back) {
			t.Fatalf("%v\n%s", err, f.Encode())
		}
		if f.Digest() != back.Digest() {
			t.Fatalf("%s: digest changed", name)
		}
		for _, change := range []func(){func() { back.Costs.Alpha++ }, func() { back.Packets = PacketPlanes{Bandwidth: 1} }} {
			before := back.Digest()
			if change(); before == back.Digest() {
				t.Fatalf("%s: digest did not change", name)
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := os.ReadFile("testdata/two-planes.yaml")
	require.NoError(t, err)
	packet, err := os.ReadFile("testdata/packet.yaml")
	require.NoError(t, err)
	hosts, err := os.ReadFile("testdata/hosts.yaml")
	require.NoError(t, err)
	for _, c := range []struct {
		base     []byte
		old, new string
		want     string
	}{
		{good, "version: 1\n", "version: 1.5\n", "line 1: version: want a whole number"},
		{good, "version: 1\n", "version: 2\n", "line 1: version: 2 is outside 1..1"},
		{good, "version: 1\n", "", "version: missing"},
		{good, "version: 1\n", "version: 1\nversion: 1\n", "line 2: "},
		{good, "forwarding: true", "forwarding: yes", "line 19: forwarding: want true or false"},
		{packet, "version: 1", "version: 1\npinned_by: x", `line 2: pinned_by: "x", but a fabric without ocs`},
		{packet, "version: 1", "version: 1\npacket_planes: {bandwidth: 1Gbps}",
			"line 2: packet_planes: a fabric without ocs has them in planes"},
		{hosts, "bandwidth: 100Gbps, ", "", "line 13: packet_planes.bandwidth: missing"},
		{hosts, "{bandwidth: 100Gbps, alpha: 10us}", "{}", "line 13: packet_planes.bandwidth: missing"},
		{hosts, "alpha: 10us", "alpha: soon", `packet_planes.alpha: "soon" is no duration`},
		{hosts, "alpha: 10us", "hop: 10us", `packet_planes: unknown field "hop"`},
		{good, "forwarding: true", "forwardin: true", `line 19: unknown field "forwardin"`},
		{good, "interface: eth2", "interface: eth2, color: red", `line 5: planes[0]: unknown field "color"`},
		{good, "interface: eth2", `interface: eth2, hca: "m"`, "line 5: planes[0].hca: a plane has an interface or an hca"},
		{good, "bandwidth: 2Gbps", "bandwidth: 2", `line 5: planes[0].bandwidth: "2" has no unit`},
		{good, "bandwidth: 2Gbps", "bandwidth: 0Gbps", `planes[0].bandwidth: "0Gbps" is no rate above zero`},
		{good, "bandwidth: 2Gbps", "bandwidth: 3Gbps", "line 7: planes[1].bandwidth: 2Gbps, but planes[0] has 3Gbps"},
		{good, "bandwidth: 2Gbps, ", "", "line 5: planes[0].bandwidth: missing"},
		{good, "ocs: ocs0, ", "ocs: ocs9, ", `line 5: planes[0].ocs: there is no ocs "ocs9"`},
		{good, "ocs: ocs0, ", "", "line 5: planes[0].ports: a plane without an ocs has no ports"},
		{good, `3: "4"}`, `3: "1"}`, `line 5: planes[0].ports.3: port "1" is that of rank 0 too`},
		{good, `, 3: "4"}`, `}`, "line 5: planes[0].ports: rank 3 has no port"},
		{good, `3: "4"}`, `3: "4", 4: "5"}`, "line 5: planes[0].ports.4: rank 4 is outside 0..3"},
		{good, `3: "4"}`, `3: "4", x: "5"}`, `planes[0].ports.x: "x" is no rank`},
		{good, `3: "4"}`, `3: "4", 03: "5"}`, `rank 3 appears twice`},
		{good, "name: p1", "name: p0", `line 6: planes[1].name: "p0" is the name of planes[0] too`},
		{good, "200us", "200", `line 16: ocs[0].reconfig: "200" is no duration`},
		{good, "200us", "-1us", `ocs[0].reconfig: "-1us" is negative`},
		{good, "driver: emulator", "driver: magic", `line 16: ocs[0].driver: "magic" is not`},
		{good, `endpoint: "unix:/run/ocsd.sock"`, `endpoint: "10.0.0.1:80"`, "an emulator is reached at unix:/path"},
		{good, "ranks: 4 ", "", "ranks: missing"},
		{good, "ranks: 4 ", "ranks: 5000 ", "line 3: ranks: 5000 is outside"},
		{good, "ranks: 4 ", "ranks: 4\nhosts: [{name: a, ranks: 3}]", "line 3: ranks: 4, but the hosts have 3"},
		{good, "circuits: duplex", "circuits: triplex", `line 18: circuits: "triplex" is not`},
		{good, "[[0,1],[2,3]]", "[[0,1],[2,1]]", "line 20: pods[1][1]: rank 1 is in pods[0] already"},
		{good, "[[0,1],[2,3]]", "[[0,1],[2,4]]", "pods[1][1]: rank 4 is outside"},
		{good, "[[0,1],[2,3]]", "[[0,1],[2]]", "line 20: pods: rank 3 is in no pod"},
		{good, "[[0,1],[2,3]]", "", `line 20: field "pods" has no value`},
		{good, "{alpha: 20us", "{beta: 20us", `line 17: costs: unknown field "beta"`},
		{good, "name: two-planes", "name: &n two", "line 2: name: want a text"},
		{good, "name: two-planes", "name: !!str two", "line 2: name: want a text"},
		{good, "[[0,1],[2,3]]", strings.Repeat("[", 100), "line 20: nested deeper"},
		{good, "[[0,1],[2,3]]", "\n" + strings.Repeat("- ", 100) + "1", "line 21: nested deeper"},
		{good, "pods: [[0,1],[2,3]]", "---\na: b", "a second document"},
		{hosts, "name: b", "name: a", `line 5: hosts[1].name: "a" is the name of hosts[0] too`},
		{hosts, "ranks: 1,", "ranks: 0,", "hosts[1].ranks: 0 is outside"},
		{hosts, ", ports: {0: 1, 1: 2, 2: 3, 3: 4}}\n  - {name: west", "}\n  - {name: west", "planes[0].ports: missing"},
		{hosts, "ocs: right", "ocs: left", `planes[1].ports.0: port "1" of left is in use on planes[0]`},
		{hosts, "3: 4}}\n  - {name: west", `3: 4}, spares: ["7", "4"]}` + "\n  - {name: west",
			`planes[0].spares[1]: port "4" of left is in use on planes[0]`},
		{good, "interface: eth2", `interface: eth2, spares: ["9"]`, "planes[0].spares: only planes on real switches"},
		{hosts, `endpoint: "10.0.0.9:5025", `, "", "line 10: ocs[0].endpoint: missing"},
		{hosts, "ocs: right, ports: {0: 1, 1: 2, 2: 3, 3: 4}", "interface: e",
			"planes[1].ocs: either every plane has an ocs or none has"},
		{hosts, "driver: gnmi, ", "", "ocs[1].driver: missing"},
		{hosts, "3: 4}}\n  - {name: west", "3: 4, 9: x, 8: x, 7: x, 6: x, 5: x}}\n  - {name: west", "rank 5 is outside 0..3"},
	} {
		text := strings.Replace(string(c.base), c.old, c.new, 1)
		if text == string(c.base) {
			t.Errorf("%q is not in the file", c.old)
		}
		f, err := Decode([]byte(text))
		if !errors.Is(err, ErrFabric) || f != nil {
			t.Errorf("%q: accepted (%v)", c.new, err)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n  got  %v\n  want %s", c.new, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"":          "empty",
		"# nothing": "empty",
		"[]":        "line 1: want fields",
		"a":         "line 1: want fields",
		"planes: [": "line 1",
		"\tname: x": "line 1",
		"version: 1\nhosts: []\nplanes: [{name: a, bandwidth: 1Gbps}]": "line 2: hosts: the hosts have 0 ranks",
		"? [a]\n: b":     "line 1: want a plain field name",
		"-\n-\n":         "line 1: a list element has no value",
		"- - # none":     "line 1: a list element has no value",
		"a:\n- b:\n- c":  `line 2: field "b" has no value`,
		"a: {b: [c],":    "line 1",
		"a: {b: , c: d}": `line 1: field "b" has no value`,
		"a: {b: 1, c}":   `line 1: field "c" has no value`,
		"a: [b: ]":       `line 1: field "b" has no value`,
		"a: \"b:\"\nc:":  `line 2: field "c" has no value`,
	} {
		if _, err := Decode([]byte(text)); !errors.Is(err, ErrFabric) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestLayouts: values may begin on the next line, lists as far left as their key, and brackets may span lines.
func TestLayouts(t *testing.T) {
	const plain = "version: 1\nranks: 2\nplanes: [{name: a, bandwidth: 1Gbps}]\npods: [[0, 1]]\n"
	want, err := Decode([]byte(plain))
	require.NoError(t, err)
	for _, text := range []string{
		"version:\n  1\nranks: 2 # two\nplanes:\n# one:\n-\n  # -\n  name: a\n  bandwidth:\n   1Gbps\n" +
			"pods:\n  - - 0\n    - 1\n",
		"{\"version\": 1, 'ranks':\n2, planes: [\n{name: a,\nbandwidth: 1Gbps,\n},\n], pods: [[0, 1,],]}",
		"version: 1\nranks: 2\nplanes:\n- name: a\n  bandwidth:\n    1Gbps\npods:\n-\n - 0\n - 1\n---\n# end",
	} {
		if f, err := Decode([]byte(text)); err != nil || !reflect.DeepEqual(f, want) {
			t.Errorf("%v, %+v:\n%s", err, f, text)
		}
	}
}

func TestInterleavedNeedsPairs(t *testing.T) {
	_, err := Decode([]byte("version: 1\nranks: 2\nplanes: [{name: a, bandwidth: 1Gbps}]\ncircuits: interleaved\n"))
	if err == nil || !strings.Contains(err.Error(), "line 3: planes: 1 is odd") {
		t.Fatal(err)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	if _, err := Load("testdata/none.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := Load("testdata"); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(path, []byte("x: 1"), 0o600))
	if _, err := Load(path); !errors.Is(err, ErrFabric) || !strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]Rate{"2Gbps": 2e9, "1.5Gbps": 1.5e9, "400Mbps": 400e6, "0.4Tbps": 400e9,
		"7bps": 7, "9 kbps": 9000} {
		r, err := ParseRate(text)
		if err != nil || r != want {
			t.Errorf("%s: %v %v", text, r, err)
		}
		if back, err := ParseRate(r.String()); err != nil || back != r {
			t.Errorf("%s: written %s", text, r)
		}
	}
	for _, text := range []string{"", "Gbps", "2", "2GB", "-1Gbps", "NaNGbps", "InfGbps", "1e400bps"} {
		if r, err := ParseRate(text); err == nil {
			t.Errorf("%q: accepted as %v", text, r)
		}
	}
	for _, d := range []time.Duration{0, 1, 1500, 200 * time.Microsecond, 25 * time.Millisecond, 3 * time.Second} {
		if back, err := parseDuration(formatDuration(d)); err != nil || back != d {
			t.Errorf("%v: written %s", d, formatDuration(d))
		}
	}
}

func TestOCSD(t *testing.T) {
	o, f, err := LoadOCSD("testdata/ocsd.yaml")
	require.NoError(t, err)
	want := &OCSD{Version: 1, Fabric: "testdata/two-planes.yaml", DataPlane: DataMemory, Socket: "/run/ocsd.sock",
		FrameLog: "testdata/frames.log", MTU: 8256, Slots: 64,
		Initial: []circuit.Permutation{{1, 0, 3, 2}, circuit.AllDark(4)}}
	if !reflect.DeepEqual(o, want) || f.Name != "two-planes" {
		t.Fatalf("%+v %+v", o, f)
	}
	if back, err := DecodeOCSD(o.Encode()); err != nil || !reflect.DeepEqual(o, back) {
		t.Fatalf("%v\n%s", err, o.Encode())
	}
	for text, want := range map[string]string{
		"version: 1":                           "line 1: fabric: missing",
		"fabric: f":                            "line 1: version: missing",
		"version: 1\nfabric: f\nmtu: 3":        "line 3: mtu: 3 is outside",
		"version: 1\nfabric: f\nslots: 1":      "line 3: slots: 1 is outside",
		"version: 1\nfabric: f\nport: 1":       `line 3: unknown field "port"`,
		"version: 1\nfabric: f\nsocket: [a]":   "line 3: socket: want a text",
		"version: 1\nfabric: f\nlisten: a":     `line 3: listen: "a": want host:port`,
		"version: 1\nfabric: f\nhttp: a:99999": "line 3: http: \"a:99999\": want host:port, the port",
		"version: 1\nfabric: f\ndata_plane: x": `line 3: data_plane: "x" is not one of memory, ` +
			`kernel, none`,
		"version: 1\nfabric: f\njournal: {kind: etcd, lease: 5ms}": "line 3: journal.lease: 5ms is less than 1s",
		"version: 1\nfabric: f\nswitches: {verify: hope}":          `switches.verify: "hope" is not one of`,
		"version: 1\nfabric: f\ntls: {password: x}":                `unknown field "password"`,
	} {
		if _, err := DecodeOCSD([]byte(text)); !errors.Is(err, ErrFabric) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestService: the configuration of a controller of real switches, and of its fabric.
func TestService(t *testing.T) {
	o, f, err := LoadOCSD("testdata/ocsd-service.yaml")
	require.NoError(t, err)
	want := &OCSD{Version: 1, Name: "a", Fabric: "testdata/controlled.yaml", DataPlane: DataNone,
		Socket: "/run/lightpath/ocsd.sock",
		Listen: "10.0.0.1:7443", HTTP: "127.0.0.1:9180", TLS: TLS{"testdata/ca.pem", "testdata/c.pem", "testdata/c.key"},
		Journal: JournalConfig{Kind: "etcd", Endpoints: []string{"https://10.0.0.2:2379"}, Dir: "testdata/etcd",
			Prefix: "/lp/", Lease: 5 * time.Second, TLS: TLS{CA: "testdata/ca.pem"}},
		Switches: SwitchesConfig{Verify: "status", DriftInterval: 2 * time.Second, Settle: time.Second,
			ReplyTimeout: 500 * time.Millisecond, PowerDrop: 2.5, InsecureSCPI: true,
			User: "u", PasswordFile: "testdata/pw", KnownHosts: "testdata/kh", TLS: TLS{Cert: "testdata/s.pem"}}}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v", o)
	}
	wantFabric := Controller{[]string{"unix:/run/lightpath/ocsd.sock", "10.0.0.1:7443"},
		TLS{"testdata/ca.pem", "testdata/rank.pem", "/etc/rank.key"}}
	if !reflect.DeepEqual(f.Controller, wantFabric) {
		t.Errorf("%+v", f.Controller)
	}
	moved := *f
	moved.Controller = Controller{}
	if moved.Digest() != f.Digest() {
		t.Error("the controller is part of the fabric's digest")
	}
	for text, want := range map[string]string{
		"controller: {ca: x}":                   "controller: endpoints: missing",
		"controller: {endpoints: [nowhere]}":    `controller.endpoints[0]: "nowhere": want host:port`,
		"controller: {endpoints: [\"unix:x\"]}": `controller.endpoints[0]: "unix:x": want unix:/path`,
		"controller: {endpoints: [], who: me}":  `unknown field "who"`,
	} {
		head := "version: 1\nranks: 2\nplanes: [{name: p, bandwidth: 1Gbps}]\n"
		if _, err := Decode([]byte(head + text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAdopt: a configuration that does not fit its fabric.
func TestAdopt(t *testing.T) {
	for name, k := range map[string]struct{ fabric, text, want string }{
		"no circuits":        {"packet", "", "no ocs to control"},
		"nowhere to connect": {"hosts", "", "socket: missing, and so is listen"},
		"real, as memory":    {"controlled", "data_plane: memory", "data_plane: memory, but the switches of"},
		"emulated, as none":  {"two-planes", "data_plane: none", "are emulated"},
		"kernel, no NIC":     {"two-planes", "data_plane: kernel", "not every plane of"},
		"rings, real":        {"controlled", "slots: 64", "for memory planes, not data_plane none"},
		"model, memory":      {"two-planes", "device: {seed: 3}", "for kernel planes, not data_plane memory"},
		"initial, real":      {"controlled", "initial: [[1,0]]", "real switches have their maps"},
		"other socket":       {"controlled", "socket: /x", "sends ranks to /run/lightpath/ocsd.sock"},
		"initial, too few":   {"two-planes", "initial: [[1,0,3,2]]", "1 maps for 2 planes"},
		"initial, one way":   {"duplex", "initial: [[1,0],[1,-1]]", "initial[1]: circuit 0 -> 1 has no 1 -> 0"},
	} {
		dir := t.TempDir()
		data, err := os.ReadFile(filepath.Join("testdata", k.fabric+".yaml"))
		require.NoError(t, err)
		for file, content := range map[string][]byte{"fabric.yaml": data,
			"ocsd.yaml": []byte("version: 1\nfabric: fabric.yaml\n" + k.text)} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
		}
		if _, _, err := LoadOCSD(filepath.Join(dir, "ocsd.yaml")); !errors.Is(err, ErrFabric) ||
			!strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"two-planes", "hosts", "packet", "ocsd", "controlled", "ocsd-service"} {
		data, err := os.ReadFile("testdata/" + name + ".yaml")
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if o, err := DecodeOCSD(data); err == nil {
			if back, err := DecodeOCSD(o.Encode()); err != nil || !reflect.DeepEqual(o, back) {
				t.Fatalf("%v\n%s", err, o.Encode())
			}
		}
		fabric, err := Decode(data)
		if (fabric == nil) == (err == nil) {
			t.Fatal("neither or both of fabric and error")
		}
		if err != nil {
			return
		}
		back, err := Decode(fabric.Encode())
		if err != nil || !reflect.DeepEqual(fabric, back) {
			t.Fatalf("%v\n%s", err, fabric.Encode())
		}
		require.NoError(t, fabric.Problem().Validate())
	})
}
