package netconf_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/netconf"
	"lightpath/plans/circuit"
)

const (
	user     = "lightpath"
	password = "a long one"
)

// serve serves a device of n ports by SSH for the length of the test.
func serve(t *testing.T, n int, c netconf.Config) (*device.Device, *netconf.Server, net.Addr) {
	t.Helper()
	d, err := device.New(device.Config{Ports: n, Preset: "palomar-ms", Seed: 3})
	require.NoError(t, err)
	c.Mode = device.Bulk
	if c.Users == nil {
		c.Users = map[string]netconf.User{user: {Password: password}}
	}
	s, err := netconf.New(d, c)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close() //nolint:errcheck // it returns nil
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		d.Close()
	})
	return d, s, l.Addr()
}

// connect makes circuits behind the server's back.
func connect(t *testing.T, d *device.Device, pairs ...circuit.Pair) {
	t.Helper()
	require.NoError(t, errors.Join(d.Apply(context.Background(), nil, pairs, device.Bulk)...))
	require.NoError(t, d.Wait(context.Background()))
}

// ncclient is a session of the Python client, one operation after the other.
const ncclient = `
import sys
import threading
from ncclient import manager
from ncclient.operations import RPCError
from ncclient.transport import SSHSession
def start(session):
    session._channel.sendall(session._q.get().encode() + b']]>]]>')
    threading.Thread.start(session)
SSHSession.start = start # otherwise its hello has the frame of version 1.1 if the server's hello is faster
port, password, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
NS = 'xmlns="http://www.polatis.com/yang/optical-switch"'
def xc(rows, op=''):
    def attribute(op):
        return ' nc:operation="%s"' % op if op else ''
    pairs = ['<pair%s><ingress>%d</ingress><egress>%d</egress></pair>' % (attribute(o), i, e) for i, e, o in rows]
    return ('<config xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0">'
        '<cross-connects %s%s>%s</cross-connects></config>' % (NS, attribute(op), ''.join(pairs)))
def pairs(m):
    tree = m.get(filter=('subtree', '<cross-connects %s/>' % NS)).data
    rows = tree.findall('.//{*}pair')
    return [(int(r.findtext('{*}ingress')), int(r.findtext('{*}egress'))) for r in rows]
def refused(tag, f, *a, **k):
    try:
        f(*a, **k)
    except RPCError as e:
        assert e.tag == tag, (e.tag, tag)
        return
    raise AssertionError('not refused: ' + tag)
def connect():
    return manager.connect(host='127.0.0.1', port=port, username='lightpath', password=password,
        hostkey_verify=False, allow_agent=False, look_for_keys=False, timeout=120)
with connect() as m:
    assert any('module=optical-switch' in c for c in m.server_capabilities)
    def edit(rows, op=''):
        m.edit_config(target=store, config=xc(rows, op))
        if store == 'candidate':
            m.validate('candidate')
            m.commit()
    with m.locked(store):
        edit([(1, 9, ''), (2, 10, 'create')])
        assert pairs(m) == [(1, 9), (2, 10)], pairs(m)
        refused('data-exists', m.edit_config, target=store, config=xc([(1, 11, 'create')]))
        refused('data-missing', m.edit_config, target=store, config=xc([(3, 11, 'delete')]))
        refused('operation-failed', m.edit_config, target=store, config=xc([(3, 10, '')]))
        refused('invalid-value', m.edit_config, target=store, config=xc([(9, 10, '')]))
        edit([(1, 9, 'delete'), (2, 11, 'replace'), (3, 10, 'create')])
        assert pairs(m) == [(2, 11), (3, 10)], pairs(m)
        edit([(4, 12, ''), (5, 13, '')], 'replace')
        assert pairs(m) == [(4, 12), (5, 13)], pairs(m)
        with connect() as other:
            refused('lock-denied', other.lock, store)
            refused('in-use', other.edit_config, target=store, config=xc([(6, 14, '')]))
    row = '<cross-connects %s><pair><ingress>5</ingress></pair></cross-connects>' % NS
    one = m.get_config(source='running', filter=('subtree', row)).data
    assert [r.text for r in one.findall('.//{*}egress')] == ['13']
    assert len(m.get().data.findall('.//{*}status')) == 16
    if store == 'candidate':
        m.edit_config(target='candidate', config=xc([(6, 14, '')]))
        m.commit(confirmed=True, timeout='60')
        assert (6, 14) in pairs(m)
        m.commit()
        m.edit_config(target='candidate', config=xc([(7, 15, '')]))
        m.discard_changes()
        m.commit()
        assert pairs(m) == [(4, 12), (5, 13), (6, 14)], pairs(m)
        m.edit_config(target='candidate', config=xc([(7, 15, '')]))
        m.commit(confirmed=True, timeout='60')
        assert (7, 15) in pairs(m)
print('all well')
`

// TestNcclient has the NETCONF client of Python use the server.
func TestNcclient(t *testing.T) {
	python := ""
	for _, p := range []string{"python3", "/usr/bin/python3"} { // Debian's packages are of the latter
		if exec.Command(p, "-c", "import ncclient").Run() == nil {
			python = p
			break
		}
	}
	if python == "" {
		t.Skip("ncclient is not installed (Debian package python3-ncclient)")
	}
	for _, store := range []string{"running", "candidate"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel() // the client waits for a commit to expire
			d, _, addr := serve(t, 8, netconf.Config{Candidate: store == "candidate"})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			port := addr.(*net.TCPAddr).AddrPort().Port()
			out, err := exec.CommandContext(ctx, python, "-c", ncclient, itoa(int(port)), password, store).CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("all well")) {
				t.Fatalf("%v\n%s", err, out)
			}
			// The last commit was never confirmed: the server undoes it when its session ends.
			for d.Map()[6] != circuit.Dark {
				if ctx.Err() != nil {
					t.Fatalf("an unconfirmed commit stays: %v", d.Map())
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
}

// TestYangcli has the client of yuma123 use the server.
func TestYangcli(t *testing.T) {
	yangcli, err := exec.LookPath("yangcli")
	if err != nil {
		t.Skip("yangcli is not installed (Debian package yangcli)")
	}
	modules, err := filepath.Abs("../../driver/netconf/testdata")
	require.NoError(t, err)
	d, _, addr := serve(t, 8, netconf.Config{})
	connect(t, d, circuit.Pair{From: 0, To: 4})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, yangcli, "--server=127.0.0.1", "--ncport="+itoa(addr.(*net.TCPAddr).Port),
		"--user="+user, "--password="+password, "--batch-mode", "--modpath="+modules+":/usr/share/yuma/modules",
		"--run-command=sget-config source=running /cross-connects")
	c.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := c.CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "ingress 1") || !strings.Contains(text, "egress 13") {
		t.Fatalf("%v\n%s", err, text)
	}
}

// TestYanglint has libyang judge what the server says.
func TestYanglint(t *testing.T) {
	yanglint, err := exec.LookPath("yanglint")
	if err != nil {
		t.Skip("yanglint is not installed (Debian package libyang2-tools)")
	}
	d, s, _ := serve(t, 8, netconf.Config{})
	connect(t, d, circuit.Pair{From: 0, To: 4}, circuit.Pair{From: 7, To: 0})
	c := newClient(t, s)
	data := c.ok(`<get/>`)
	var inner []byte
	for _, e := range data.Children {
		inner = e.Append(inner)
	}
	lint := func(content []byte) ([]byte, error) {
		file := filepath.Join(t.TempDir(), "data.xml")
		require.NoError(t, os.WriteFile(file, content, 0o600))
		return exec.Command(yanglint, "-t", "data", "../../driver/netconf/testdata/optical-switch.yang",
			file).CombinedOutput()
	}
	if out, err := lint(inner); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, inner)
	}
	// It would have noticed.
	if out, err := lint(bytes.Replace(inner, []byte("ENABLED"), []byte("SHINY"), 1)); err == nil {
		t.Fatalf("a state that is none passes: %s", out)
	}
}
