package gnmi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/gnmi"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/ocsctl/internal/memnet"
	"lightpath/plans/circuit"
)

// serve serves a new device on a port of this host until the test ends.
func serve(t *testing.T, o gnmi.Options) (endpoint string, d *device.Device) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l.Addr().String(), serveOn(t, l, o)
}

func serveOn(t *testing.T, l net.Listener, o gnmi.Options) *device.Device {
	t.Helper()
	d, err := device.New(device.Config{
		Ports: 4, Delays: &device.Delays{Min: 5 * time.Millisecond, Max: 5 * time.Millisecond},
		In: device.Suffixed("A"), Out: device.Suffixed("B"),
	})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	await.Background(t, func(ctx context.Context) error { return gnmi.Serve(ctx, l, d, o) })
	return d
}

// TestAbsentEntry: an entry that is not there is not found, in every dialect and encoding; an empty table is.
func TestAbsentEntry(t *testing.T) {
	for _, name := range dialect.Names() {
		t.Run(name, func(t *testing.T) {
			endpoint, _ := serve(t, gnmi.Options{Dialect: name})
			c := dial(t, endpoint)
			words, err := dialect.Lookup(name)
			require.NoError(t, err)
			for _, e := range []gpb.Encoding{gpb.Encoding_JSON_IETF, gpb.Encoding_PROTO} {
				absent := words.EntryPath(&words.Config, words.Vars("", "1A", "9B"))
				r, err := c.Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{absent}, Encoding: e})
				if status.Code(err) != codes.NotFound {
					t.Errorf("%v: %v, %v; want %v", e, r, err, codes.NotFound)
				}
				if _, err := c.Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{words.ReadPath(&words.Config)},
					Encoding: e}); err != nil {
					t.Errorf("%v: an empty table: %v", e, err)
				}
			}
		})
	}
}

// gnmiCLI builds OpenConfig's own client, from the module that the protocol's messages come from.
func gnmiCLI(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program")
	}
	dir := t.TempDir()
	build := exec.Command("go", "install", "github.com/openconfig/gnmi/cmd/gnmi_cli@v0.14.1")
	build.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("gnmi_cli cannot be had: %v: %s", err, out)
	}
	return func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, filepath.Join(dir, "gnmi_cli"), append(args, "-logtostderr", "-timeout",
			"10s")...).CombinedOutput()
		return string(out), err
	}
}

// TestCLI has a client that we did not write ask for, change and follow the map in every dialect.
func TestCLI(t *testing.T) {
	cli := gnmiCLI(t)
	for _, c := range []struct{ dialect, model, set, get, want, query, up string }{
		{
			"ocp", "ocp-ocs-optical-switch-connections",
			`update: <path: <elem: <name: "connections"> elem: <name: "port-connection" key: <key: "name" value: "first">>>
				val: <json_ietf_val: "{\"config\":{\"name\":\"first\",\"input-port-name\":\"1A\",\"output-port-name\":\"3B\"}}">>`,
			`path: <elem: <name: "connections">> encoding: JSON_IETF`, `\"output-port-name\":\"3B\"`,
			"connections", `"CONNECTED"`,
		},
		{
			"sonic-db", "sonic-ocs",
			`update: <path: <origin: "sonic-db" elem: <name: "CONFIG_DB"> elem: <name: "localhost">
				elem: <name: "OCS_CROSS_CONNECT"> elem: <name: "1A-3B">>
				val: <json_ietf_val: "{\"a_side\":\"1A\",\"b_side\":\"3B\"}">>`,
			`path: <origin: "sonic-db" elem: <name: "CONFIG_DB"> elem: <name: "localhost">
				elem: <name: "OCS_CROSS_CONNECT">> encoding: JSON_IETF`,
			`\"b_side\":\"3B\"`,
			"STATE_DB/localhost/OCS_CROSS_CONNECT", `"tuned"`,
		},
		{
			"oc-optical-switch", "openconfig-optical-switch",
			`update: <path: <elem: <name: "optical-switch"> elem: <name: "port-connections">
				elem: <name: "port-connection" key: <key: "slot" value: "1"> key: <key: "port" value: "1A">>>
				val: <json_ietf_val: "{\"config\":{\"slot\":1,\"port\":\"1A\",\"peer-slot\":1,\"peer-port\":\"3B\"}}">>`,
			`path: <elem: <name: "optical-switch"> elem: <name: "port-connections">> encoding: JSON_IETF`,
			`\"peer-port\":\"3B\"`,
			"optical-switch/port-statuses", `"TUNED"`,
		},
	} {
		t.Run(c.dialect, func(t *testing.T) {
			t.Parallel() // a client that follows a stream takes its time
			endpoint, d := serve(t, gnmi.Options{Dialect: c.dialect})
			ask := func(want string, args ...string) {
				t.Helper()
				out, err := cli(append([]string{"-a", endpoint, "-insecure"}, args...)...)
				if err != nil || !strings.Contains(out, want) {
					t.Fatalf("%v: no %s in\n%s", err, want, out)
				}
			}
			ask(c.model, "-capabilities")
			ask("UPDATE", "-set", "-proto", c.set)
			if got := d.Map(); !got.Equal(circuit.Permutation{2, circuit.Dark, circuit.Dark, circuit.Dark}) {
				t.Fatalf("the switch has %v", got)
			}
			ask(c.want, "-get", "-proto", c.get)
			require.NoError(t, d.Wait(t.Context()))
			ask(c.up, "-q", c.query, "-qt", "once")
			// A client that leaves a stream calls it an error.
			if out, _ := cli("-a", endpoint, "-insecure", "-q", c.query, "-qt", "s", "-sd", "2s"); !strings.Contains(out, c.up) {
				t.Fatalf("no %s in\n%s", c.up, out)
			}
			ask(c.up, "-q", c.query, "-qt", "p", "-c", "2", "-pi", "20ms")
		})
	}
}

// TestExposed: a listener that others reach is not served without certificates.
func TestExposed(t *testing.T) {
	d, err := device.New(device.Config{Ports: 2})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	if err := gnmi.Serve(t.Context(), l, d, gnmi.Options{}); !errors.Is(err, gnmi.ErrExposed) {
		t.Fatalf("%v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener is open still")
	}
}

// TestTooMuch: connections and messages are bounded, and those within the bounds are served still.
func TestTooMuch(t *testing.T) {
	endpoint, _ := serve(t, gnmi.Options{})
	const dialled, admitted = 40, 32
	refused := 0
	var open []net.Conn
	for range dialled {
		c, err := net.Dial("tcp", endpoint)
		require.NoError(t, err)
		open = append(open, c)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(60*time.Second)))
		if _, err := c.Read(make([]byte, 1)); err != nil { // the server sends settings to accepted clients
			refused++
		}
	}
	if refused != dialled-admitted {
		t.Errorf("%d of %d connections were refused", refused, dialled)
	}
	for _, c := range open {
		c.Close()
	}
	client := dial(t, endpoint)
	await.Success(t, "the server answers", func() error {
		_, err := client.Capabilities(t.Context(), &gpb.CapabilityRequest{})
		return err
	})
	huge := jsonAt(list(), `"`+strings.Repeat("x", 5<<20)+`"`)
	if _, err := client.Set(t.Context(),
		&gpb.SetRequest{Update: []*gpb.Update{huge}}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message of 5 MiB: %v", err)
	}
}

// TestSilentClients: the server closes the connection of a client that sends nothing, or half a greeting.
func TestSilentClients(t *testing.T) {
	for _, text := range []string{"", "PRI * HTTP/2", "GET / HTTP/1.1\r\n\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			l := memnet.Listen()
			serveOn(t, l, gnmi.Options{})
			c, err := l.Dial(t.Context(), "", "")
			require.NoError(t, err)
			defer c.Close()
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q: the connection stays", text)
			}
		})
	}
}
