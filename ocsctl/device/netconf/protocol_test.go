package netconf_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/netconf"
	"lightpath/ocsctl/driver/netconf/wire"
	"lightpath/plans/circuit"
)

// pair is a row of cross-connects.
func pair(in, out, op string) string {
	if op != "" {
		op = ` nc:operation="` + op + `"`
	}
	if out != "" {
		out = "<o:egress>" + out + "</o:egress>"
	}
	return "<o:pair" + op + "><o:ingress>" + in + "</o:ingress>" + out + "</o:pair>"
}

// edit is an edit of a store, with options such as the default operation.
func edit(store, options, config string) string {
	return "<edit-config><target><" + store + "/></target>" + options + "<config>" + config + "</config></edit-config>"
}

// xc is an edit of a store with rows of cross-connects.
func xc(store, rows string) string { return edit(store, "", connects(rows)) }

func connects(rows string) string { return "<o:cross-connects>" + rows + "</o:cross-connects>" }

// averaging is the configuration of the power meter of a port.
func averaging(port, time string) string {
	return "<o:opm-config><o:port><o:port-id>" + port + "</o:port-id>" + time + "</o:port></o:opm-config>"
}

// offline is a server without a listener.
func offline(t *testing.T, c netconf.Config) (*device.Device, *netconf.Server) {
	t.Helper()
	d, err := device.New(device.Config{Ports: 4, Preset: "palomar-ms"})
	require.NoError(t, err)
	s, err := netconf.New(d, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close() //nolint:errcheck // it returns nil
		d.Close()
	})
	return d, s
}

func TestRefusals(t *testing.T) {
	d, s := offline(t, netconf.Config{})
	c := newClient(t, s)
	c.ok(xc("running", pair("1", "5", "")))
	revision := d.Revision()
	for _, r := range []struct{ tag, op string }{
		{"data-exists", xc("running", pair("1", "6", "create"))},
		{"data-missing", xc("running", pair("2", "", "delete"))},
		{"missing-element", xc("running", pair("2", "", ""))},
		{"operation-failed", xc("running", pair("2", "5", ""))},                    // shares an egress
		{"operation-failed", xc("running", pair("2", "6", "")+pair("3", "6", ""))}, // two do
		{"invalid-value", xc("running", pair("5", "6", ""))},                       // an egress port
		{"invalid-value", xc("running", pair("2", "1", ""))},                       // an ingress port
		{"invalid-value", xc("running", pair("0", "6", ""))},
		{"invalid-value", xc("running", pair("99999999999999999999", "6", ""))},
		{"bad-attribute", xc("running", pair("2", "6", "paint"))},
		{"unknown-element", xc("running", "<o:patch/>")},
		{"unknown-namespace", xc("running", "<pair/>")},
		{"invalid-value", xc("startup", "")},
		{"operation-not-supported", xc("candidate", pair("2", "6", ""))},
		{"missing-element", "<edit-config><target><running/></target></edit-config>"},
		{"missing-element", "<edit-config><config/></edit-config>"},
		{"invalid-value", edit("running", "<default-operation>paint</default-operation>", "")},
		{"unknown-element", edit("running", "", "<o:voa/>")},
		{"invalid-value", edit("running", "", averaging("5", "<o:averaging-time>9</o:averaging-time>"))},
		{"invalid-value", edit("running", "", averaging("1", ""))},
		{"operation-not-supported", "<commit/>"},
		{"operation-not-supported", "<discard-changes/>"},
		{"operation-not-supported", "<validate><source><running/></source></validate>"},
		{"operation-not-supported", "<o:system-restart/>"},
		{"operation-not-supported", "<copy-config/>"},
		{"operation-not-supported", `<get><filter type="xpath" select="/"/></get>`},
		{"operation-failed", "<unlock><target><running/></target></unlock>"},
		{"invalid-value", "<lock><target><candidate/></target></lock>"},
		{"missing-element", "<lock/>"},
		{"invalid-value", "<kill-session><session-id>99</session-id></kill-session>"},
		{"invalid-value", "<kill-session><session-id>me</session-id></kill-session>"},
		{"missing-element", "<get/><get/>"},
		{"missing-element", ""},
	} {
		c.refused(r.tag, r.op)
	}
	if got := d.Revision(); got != revision {
		t.Errorf("what was refused changed the table %d times", got-revision)
	}
	reply := c.send(`<rpc xmlns="` + wire.BaseNS + `"><get/></rpc>`)
	if len(reply.Errors) != 1 || reply.Errors[0].Tag != "missing-attribute" {
		t.Errorf("without message-id: %+v", reply)
	}
	if reply = c.send("<rpc"); len(reply.Errors) != 1 || reply.Errors[0].Tag != "malformed-message" {
		t.Errorf("no XML: %+v", reply)
	}
	if _, err := c.framer.Read(); err == nil {
		t.Error("the session goes on after what is no XML")
	}
}

// TestEdits: a duplicate egress is no matter of the schema, and a swap is no conflict.
func TestEdits(t *testing.T) {
	d, s := offline(t, netconf.Config{})
	c := newClient(t, s)
	for _, e := range []struct {
		rows string
		want circuit.Permutation
	}{
		{pair("1", "5", "") + pair("2", "6", "create"), circuit.Permutation{0, 1, -1, -1}},
		{pair("1", "6", "replace") + pair("2", "5", ""), circuit.Permutation{1, 0, -1, -1}},
		{pair("1", "", ""), circuit.Permutation{1, 0, -1, -1}},
		{pair("1", "", "delete") + pair("3", "6", ""), circuit.Permutation{-1, 0, 1, -1}},
		{pair("1", "", "remove"), circuit.Permutation{-1, 0, 1, -1}},
	} {
		c.ok(xc("running", e.rows))
		if got := d.Map(); !got.Equal(e.want) {
			t.Fatalf("%s: %v, want %v", e.rows, got, e.want)
		}
	}
	c.ok(edit("running", "<default-operation>none</default-operation>",
		connects(pair("2", "8", "")+pair("3", "7", "merge"))))
	if got := d.Map(); !got.Equal(circuit.Permutation{-1, 0, 2, -1}) {
		t.Fatalf("with the default operation none: %v", got)
	}
	c.ok(edit("running", "<default-operation>replace</default-operation>", connects(pair("4", "5", ""))))
	if got := d.Map(); !got.Equal(circuit.Permutation{-1, -1, -1, 0}) {
		t.Fatalf("with the default operation replace: %v", got)
	}
	clear := edit("running", "", `<o:cross-connects nc:operation="delete"/>`)
	c.ok(clear)
	if got := d.Map(); !got.Equal(circuit.AllDark(4)) {
		t.Fatalf("after a delete of all: %v", got)
	}
	c.refused("data-missing", clear)
	c.ok(edit("running", "<test-option>test-only</test-option>", connects(pair("1", "5", ""))))
	c.ok(edit("running", "", averaging("5", "<o:averaging-time>3</o:averaging-time>")))
	if !d.Map().Equal(circuit.AllDark(4)) || d.Averaging() != 40*time.Millisecond {
		t.Fatalf("a test made %v, averaging is %v", d.Map(), d.Averaging())
	}
}

func TestFilters(t *testing.T) {
	d, s := offline(t, netconf.Config{})
	connect(t, d, circuit.Pair{From: 0, To: 1}, circuit.Pair{From: 2, To: 3})
	c := newClient(t, s)
	told := func(rows string) string { return strings.ReplaceAll(connects(rows), "o:", "") }
	for _, f := range []struct{ filter, want string }{
		{`<o:cross-connects/>`, told(pair("1", "6", "") + pair("3", "8", ""))},
		{connects(pair("3", "", "")), told(pair("3", "8", ""))},
		{connects("<o:pair><o:ingress>3</o:ingress><o:egress/></o:pair>"), told(pair("3", "8", ""))},
		{connects("<o:pair><o:egress/></o:pair>"),
			told("<pair><egress>6</egress></pair><pair><egress>8</egress></pair>")},
		{connects(pair("4", "", "")), ``},
		{`<o:port-config><o:port><o:port-id>2</o:port-id></o:port></o:port-config>`,
			`<port-config><port><port-id>2</port-id><status>ENABLED</status></port></port-config>`},
		{`<o:product-information><o:manufacturer/></o:product-information>`,
			`<product-information><manufacturer>` + d.Info().Vendor + `</manufacturer></product-information>`},
		{`<o:opm-power><o:port><o:port-id>5</o:port-id></o:port></o:opm-power>`,
			`<opm-power><port><port-id>5</port-id><power>-60.00</power></port></opm-power>`},
		{`<cross-connects xmlns=""><pair><ingress>1</ingress></pair></cross-connects>`, told(pair("1", "6", ""))},
		{`<cross-connects xmlns="urn:another"/>`, ``},
		{``, ``},
	} {
		data := c.ok(`<get><filter type="subtree">` + f.filter + `</filter></get>`)
		var got strings.Builder
		for _, e := range data.Children {
			got.WriteString(strings.ReplaceAll(e.String(), ` xmlns="`+wire.OpticalNS+`"`, ""))
		}
		if got.String() != f.want {
			t.Errorf("%s:\nhave %s\nwant %s", f.filter, got.String(), f.want)
		}
	}
	if data := c.ok("<get-config><source><running/></source></get-config>"); data.Child(wire.OpticalNS,
		"opm-power") != nil || data.Child(wire.OpticalNS, "cross-connects") == nil {
		t.Errorf("configuration: %s", data)
	}
}

// TestLocks: one owner, who alone edits; the end of a session is the end of its locks.
func TestLocks(t *testing.T) {
	_, s := offline(t, netconf.Config{Candidate: true})
	a, b := newClient(t, s), newClient(t, s)
	a.ok("<lock><target><running/></target></lock>")
	a.ok("<lock><target><candidate/></target></lock>")
	reply := b.rpc("<lock><target><running/></target></lock>")
	if len(reply.Errors) != 1 || reply.Errors[0].Tag != "lock-denied" || reply.Errors[0].Session != a.hello.Session {
		t.Errorf("a lock that session %d holds: %+v", a.hello.Session, reply.Errors)
	}
	b.refused("in-use", xc("candidate", pair("1", "5", "")))
	b.refused("in-use", "<commit/>")
	b.refused("in-use", "<discard-changes/>")
	b.refused("operation-failed", "<unlock><target><running/></target></unlock>")
	a.ok(xc("candidate", pair("1", "5", "")))
	a.close()
	b.ok("<lock><target><candidate/></target></lock>") // the changes went with their session
	b.ok("<unlock><target><candidate/></target></unlock>")
	b.ok(xc("candidate", pair("1", "5", "")))
	b.refused("lock-denied", "<lock><target><candidate/></target></lock>")
	third := newClient(t, s)
	third.ok("<kill-session><session-id>" + itoa(int(b.hello.Session)) + "</session-id></kill-session>")
	<-b.ended
	third.ok("<close-session/>")
	<-third.ended
}

// TestConfirmedCommit on a fake clock: the server undoes a commit without confirmation after its time, at a cancel, or
// with the session.
func TestConfirmedCommit(t *testing.T) {
	const commit = "<commit><confirmed/><confirm-timeout>5</confirm-timeout>"
	synctest.Test(t, func(t *testing.T) {
		d, s := offline(t, netconf.Config{Candidate: true})
		first, changed := circuit.Permutation{0, -1, -1, -1}, circuit.Permutation{1, -1, -1, -1}
		is := func(when string, want circuit.Permutation) {
			t.Helper()
			synctest.Wait()
			if got := d.Map(); !got.Equal(want) {
				t.Fatalf("%s: %v, want %v", when, got, want)
			}
		}
		c, other := newClient(t, s), newClient(t, s)
		c.ok(xc("candidate", pair("1", "5", "")))
		is("before the commit", circuit.AllDark(4))
		c.ok("<commit/>")
		is("after it", first)

		edit := xc("candidate", pair("1", "6", ""))
		c.ok(edit)
		c.ok(commit + "</commit>")
		is("on probation", changed)
		other.refused("lock-denied", "<lock><target><running/></target></lock>")
		other.refused("in-use", "<commit/>")
		time.Sleep(4900 * time.Millisecond)
		is("shortly before the timeout", changed)
		time.Sleep(200 * time.Millisecond)
		is("after the timeout", first)
		c.refused("invalid-value", "<cancel-commit/>")

		c.ok(edit)
		c.ok(commit + "</commit>")
		c.ok("<cancel-commit/>")
		is("cancelled", first)

		c.ok(edit)
		c.ok(commit + "<persist>p</persist></commit>")
		other.refused("invalid-value", "<commit><persist-id>q</persist-id></commit>")
		other.refused("invalid-value", "<cancel-commit><persist-id>q</persist-id></cancel-commit>")
		c.close()
		is("persistent, without its session", changed)
		other.ok("<commit><persist-id>p</persist-id></commit>")
		time.Sleep(time.Minute)
		is("confirmed by another session", changed)
		other.refused("invalid-value", "<commit><persist-id>p</persist-id></commit>")

		other.ok(xc("candidate", pair("1", "5", "")))
		other.ok(commit + "</commit>")
		is("on probation again", first)
		other.close()
		is("without its session", changed)
	})
}

// TestSlowClients on a fake clock: a client that takes too long loses the session.
func TestSlowClients(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(conn net.Conn, f *wire.Framer) // after the hellos, if hello
		hello bool
		limit time.Duration
	}{
		"says nothing at all":   {func(net.Conn, *wire.Framer) {}, false, 61 * time.Second},
		"says nothing any more": {func(net.Conn, *wire.Framer) {}, true, 11 * time.Minute},
		"drips": {func(conn net.Conn, _ *wire.Framer) {
			for _, c := range []byte("\n#1000\n<rpc" + strings.Repeat(" ", 900)) {
				time.Sleep(time.Second)
				if _, err := conn.Write([]byte{c}); err != nil {
					return
				}
			}
		}, true, 90 * time.Second},
		"does not listen": {func(_ net.Conn, f *wire.Framer) {
			_ = f.Write([]byte(`<rpc message-id="1" xmlns="` + wire.BaseNS + `"><get/></rpc>`)) // the answer stays
		}, true, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := offline(t, netconf.Config{})
				ours, theirs := net.Pipe()
				defer ours.Close()
				ended := make(chan struct{})
				start := time.Now()
				go func() { defer close(ended); s.ServeStream(theirs) }()
				f := wire.NewFramer(ours, 1<<20)
				if _, err := f.Read(); err != nil {
					t.Fatal(err)
				}
				if c.hello {
					require.NoError(t, f.Write(wire.Hello{Capabilities: []string{wire.Base11}}.Element().Append(nil)))
					f.Chunked()
				}
				did := make(chan struct{})
				go func() { defer close(did); c.do(ours, f) }()
				<-ended
				if took := time.Since(start); took > c.limit {
					t.Errorf("it took %v, want at most %v", took, c.limit)
				}
				ours.Close()
				<-did
			})
		})
	}
}

// TestReboot: sessions end, the switch accepts none while it is down, and then it serves.
func TestReboot(t *testing.T) { synctest.Test(t, reboot) }

func reboot(t *testing.T) {
	d, s := offline(t, netconf.Config{})
	c := newClient(t, s)
	c.ok("<get/>")
	require.NoError(t, d.Inject(device.Fault{Kind: device.Reboot, Delay: 2 * time.Second}))
	<-c.ended
	ours, theirs := net.Pipe()
	s.ServeStream(theirs)
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a switch that is down: %v", err)
	}
	time.Sleep(2 * time.Second)
	newClient(t, s).ok("<get/>")
}

// TestLogin over SSH: the server refuses unknown users, wrong secrets and other subsystems.
func TestLogin(t *testing.T) {
	_, s, addr := serve(t, 4, netconf.Config{Users: map[string]netconf.User{user: {Password: password}, "locked": {}}})
	login := func(name string, auth ...ssh.AuthMethod) (*ssh.Client, error) {
		return ssh.Dial("tcp", addr.String(), &ssh.ClientConfig{
			User: name, Auth: auth, HostKeyCallback: ssh.FixedHostKey(s.HostKey()), Timeout: 60 * time.Second,
		})
	}
	for name, try := range map[string]func() (*ssh.Client, error){
		"wrong password": func() (*ssh.Client, error) { return login(user, ssh.Password("guess")) },
		"empty password": func() (*ssh.Client, error) { return login("locked", ssh.Password("")) },
		"no user":        func() (*ssh.Client, error) { return login("nobody", ssh.Password(password)) },
		"no secret":      func() (*ssh.Client, error) { return login(user) },
	} {
		if c, err := try(); err == nil {
			t.Errorf("%s: logged in", name)
			c.Close() //nolint:errcheck // it should not be open
		}
	}
	c, err := login(user, ssh.Password(password))
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // the test ends
	session, err := c.NewSession()
	require.NoError(t, err)
	if session.RequestSubsystem("sftp") == nil || session.Run("id") == nil {
		t.Error("it serves more than NETCONF")
	}
	if _, err := c.NewSession(); err == nil {
		t.Error("a connection has two sessions")
	}
}

func TestBadConfig(t *testing.T) {
	d, err := device.New(device.Config{Ports: 2, In: device.Suffixed("A"), Out: device.Suffixed("B")})
	require.NoError(t, err)
	defer d.Close()
	if _, err := netconf.New(d, netconf.Config{}); !errors.Is(err, netconf.ErrConfig) {
		t.Errorf("labels that are no numbers: %v", err)
	}
}

// TestOthers: what happens to the device elsewhere shows at once, ghosts included.
func TestOthers(t *testing.T) {
	d, s := offline(t, netconf.Config{})
	c := newClient(t, s)
	connect(t, d, circuit.Pair{From: 0, To: 1})
	require.NoError(t, d.Inject(device.Fault{Kind: device.GhostConnect, In: 0, Out: 3}))
	pairs, err := wire.Pairs(c.ok("<get/>"))
	if err != nil || len(pairs) != 2 || pairs[1] != (wire.Pair{Ingress: 1, Egress: 8}) {
		t.Errorf("%v, %v", pairs, err)
	}
	for _, err := range d.Apply(context.Background(), nil, []circuit.Pair{{From: 1, To: 0}}, device.Bulk) {
		require.NoError(t, err)
	}
	status := func() string {
		data := c.ok("<get><filter><o:port-config><o:port><o:port-id>2</o:port-id></o:port></o:port-config></filter></get>")
		return data.Child(wire.OpticalNS, "port-config").Child(wire.OpticalNS, "port").Value(wire.OpticalNS, "status")
	}
	if err := d.Wait(context.Background()); err != nil || status() != "ENABLED" {
		t.Errorf("a tuned port is %s, %v", status(), err)
	}
}
