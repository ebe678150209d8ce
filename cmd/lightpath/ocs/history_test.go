package ocs

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/web"
	"lightpath/shim"
)

// keptHistory is a journal of these events, which are in order.
type keptHistory []controller.Event

func (k keptHistory) History(_ context.Context, q controller.Query) ([]controller.Event, error) {
	var found []controller.Event
	for i := len(k) - 1; i >= 0 && (q.Limit == 0 || len(found) < q.Limit); i-- {
		if q.Match(&k[i]) {
			found = append(found, k[i])
		}
	}
	return found, nil
}

func someHistory() keptHistory {
	at := time.Now().Add(-10 * time.Minute)
	h := keptHistory{
		{Seq: 1, Kind: controller.TookOver, Plane: -1, Port: -1, Who: "ocs1", Token: 41},
		{Seq: 2, Kind: controller.Granted, Plane: -1, Port: 3, Holder: 0xbeef, Mask: 3, Waited: time.Second},
		{Seq: 3, Kind: controller.Switched, Plane: 0, Epoch: 7, Port: -1, Took: 25 * time.Millisecond,
			Waited: 3 * time.Millisecond, Verified: "light"},
		{Seq: 4, Kind: controller.Switched, Plane: 1, Epoch: 9, Port: -1, Took: 26 * time.Millisecond},
		{Seq: 5, Kind: controller.Failed, Plane: 1, Epoch: 9, Port: -1, Err: "drift\x1b[2J\nport 3"},
	}
	for i := range h {
		h[i].Time = at.Add(time.Duration(i) * time.Minute)
	}
	return h
}

// standby answers for a controller that has no core.
func standby() (controller.Controller, string) { return nil, "ocs2" }

func serveHistory(t *testing.T) (url, endpoint string) {
	t.Helper()
	h := someHistory()
	page, err := web.New(web.Options{Controller: standby, Planes: []string{"east", "west"}, History: h.History})
	require.NoError(t, err)
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := rpc.Serve(l, rpc.ServerOptions{
		Controller: standby, History: h, Ports: 2, Planes: []ocsctl.PlaneInfo{{Name: "east"}, {Name: "west"}},
		DataPlane: ocsctl.DataNone, Name: "ocs1", Version: shim.Version,
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return server.URL, l.Addr().String()
}

func TestOCSHistory(t *testing.T) {
	url, endpoint := serveHistory(t)
	fabric := filepath.Join(t.TempDir(), "fabric.yaml")
	text := fmt.Sprintf(`
version: 1
ranks: 2
controller: {endpoints: ["unix:/run/lightpath/ocsd.sock", "%s"]}
planes:
  - {name: east, bandwidth: 2Gbps, ocs: sw, ports: {0: "1", 1: "2"}}
  - {name: west, bandwidth: 2Gbps, ocs: sw, ports: {0: "3", 1: "4"}}
ocs:
  - {name: sw, driver: polatis-scpi, endpoint: "127.0.0.1:5025", reconfig: 25ms}
`, endpoint)
	require.NoError(t, os.WriteFile(fabric, []byte(text), 0o600))
	for _, source := range [][]string{{"--http", url}, {"--fabric", fabric}, {"--controller", endpoint}} {
		ask := func(more ...string) string {
			t.Helper()
			return lightpath.Succeed(t, "", append(append([]string{"ocs", "history"}, source...), more...)...)
		}
		out := ask()
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != 6 || !strings.HasPrefix(lines[0], "TIME") {
			t.Fatalf("%v:\n%s", source, out)
		}
		for i, words := range [][]string{{"took-over", "ocs1, token 41"}, {"granted", "1s", "holder 0xbeef, port 3"},
			{"7", "switched", "25ms", "3ms", "light"}, {"switched", "26ms", "-"}, {"failed", "drift?[2J?port 3"}} {
			for _, w := range words {
				if !strings.Contains(lines[i+1], w) {
					t.Errorf("%v: no %q in %q", source, w, lines[i+1])
				}
			}
		}
		if named := strings.Contains(lines[2], "east,west") &&
			strings.Contains(lines[5], "west"); named != (source[0] != "--controller") {
			t.Errorf("%v: names of planes: %s", source, out)
		}
		var events []controller.Event
		if err := json.Unmarshal([]byte(ask("--json", "--plane", "1", "--limit", "1")), &events); err != nil ||
			len(events) != 1 || events[0].Seq != 5 {
			t.Errorf("%v: %v %+v", source, err, events)
		}
		if out := ask("--since", "7m30s", "--kind", "switched"); strings.Count(out, "\n") != 2 {
			t.Errorf("%v: %s", source, out)
		}
		if out := ask("--kind", "restored", "--json"); strings.TrimSpace(out) != "[]" {
			t.Errorf("%v: %s", source, out)
		}
	}
}

func TestOCSHistoryRefuses(t *testing.T) {
	url, _ := serveHistory(t)
	t.Setenv("LIGHTPATH_FABRIC", "")
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, cli.ExitUsage, "--controller, --http, or a --fabric file"},
		{[]string{"--http", url, "--controller", "127.0.0.1:1"}, cli.ExitUsage, "--http is instead of"},
		{[]string{"--http", url, "--plane", "north"}, cli.ExitUsage, "--plane"},
		{[]string{"--http", url, "--plane", "2"}, cli.ExitUsage, "--plane"},
		{[]string{"--http", url, "--limit", "0"}, cli.ExitUsage, "--limit"},
		{[]string{"--http", url, "--since", "yesterday"}, cli.ExitUsage, "--since"},
		{[]string{"--http", url, "--kind", "moved"}, cli.ExitUsage, "--kind"},
		{[]string{"--http", "ftp://x"}, cli.ExitUsage, "--http"},
		{[]string{"--http", "https://127.0.0.1:1"}, cli.ExitUsage, "--http"},
		{[]string{"--http", "http://127.0.0.1:1"}, cli.ExitNo, "refused"},
		{[]string{"--controller", "127.0.0.1:1", "--timeout", "5s"}, cli.ExitNo, "127.0.0.1:1"},
		{[]string{"--controller", "10.0.0.1:7443"}, cli.ExitUsage, "ca, cert and key"},
	} {
		o := lightpath.Run(t, "", append([]string{"ocs", "history"}, c.args...)...)
		if o.Status != c.status || !strings.Contains(o.Stderr, c.says) || strings.Count(o.Stderr, "\n") != 1 ||
			o.Stdout != "" {
			t.Errorf("%v: %+v", c.args, o)
		}
	}
}
