package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/fabric"
)

// fakeSwitch behaves as `lightpath ocsd --config FILE` would: it listens where its configuration says
// until it is told to end, and then leaves a word beside the socket.
func fakeSwitch(behaviour string) int {
	if behaviour == "switch-fails" {
		fmt.Fprintln(os.Stderr, "ocsd: plane p7 does not exist")
		return 2
	}
	config, _, err := fabric.LoadOCSD(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	l, err := net.Listen("unix", config.Socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.Close()
		}
	}()
	<-stop
	l.Close()
	if err := os.WriteFile(config.Socket+".closed", nil, 0o600); err != nil {
		return 1
	}
	return 0
}

// switchFabric writes a fabric of one emulated switch and returns its path and its socket's.
func switchFabric(t *testing.T) (path, socket string) {
	t.Helper()
	// The path of a socket is short, a test's temporary directory need not be.
	dir, err := os.MkdirTemp("", "lp")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path, socket = filepath.Join(dir, "fabric.yaml"), filepath.Join(dir, "ocs.sock")
	text := fmt.Sprintf(`version: 1
name: one
ranks: 2
planes:
  - {name: p0, bandwidth: 1Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:%s", reconfig: 1ms}
`, socket)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path, socket
}

func TestEnsureOCS(t *testing.T) {
	t.Setenv(workerVar, "switch")
	self, err := os.Executable()
	require.NoError(t, err)
	path, socket := switchFabric(t)
	stop, err := EnsureOCS(context.Background(), path, self)
	require.NoError(t, err)
	if !listening("unix:" + socket) {
		t.Error("the switch does not listen")
	}
	// A switch that runs is left alone: a second one could not have the socket.
	stopNothing, err := EnsureOCS(context.Background(), path, "/no/such/program")
	if err != nil {
		t.Errorf("a switch that runs: %v", err)
	} else {
		stopNothing()
	}
	if !listening("unix:" + socket) {
		t.Error("the switch was stopped by somebody who did not start it")
	}
	stop()
	if listening("unix:" + socket) {
		t.Error("the switch still listens")
	}
	if _, err := os.Stat(socket + ".closed"); err != nil {
		t.Errorf("the switch was not ended in good order: %v", err)
	}
}

// A controller may be named in the file's controller field instead of at its switch.
func TestEnsureOCSOfAController(t *testing.T) {
	t.Setenv(workerVar, "switch")
	self, err := os.Executable()
	require.NoError(t, err)
	path, socket := switchFabric(t)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	without := strings.Replace(string(text), fmt.Sprintf(`endpoint: "unix:%s", `, socket), "", 1)
	for _, c := range []struct {
		endpoints string
		starts    bool
	}{{fmt.Sprintf(`"ocs.example:7442", "unix:%s"`, socket), true}, {`"ocs.example:7442"`, false}} {
		text := without + "controller: {endpoints: [" + c.endpoints + "]}\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		stop, err := EnsureOCS(t.Context(), path, self)
		require.NoError(t, err)
		if listening(socket) != c.starts {
			t.Errorf("%s: a controller of this host listens: %t", c.endpoints, !c.starts)
		}
		if c.starts { // a controller that runs is left alone
			again, err := EnsureOCS(t.Context(), path, "/no/such/program")
			require.NoError(t, err)
			again()
		}
		stop()
	}
}

func TestEnsureOCSFailures(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	path, _ := switchFabric(t)
	t.Setenv(workerVar, "switch-fails")
	if _, err := EnsureOCS(context.Background(), path, self); err == nil ||
		!strings.Contains(err.Error(), "exit status 2") || !strings.Contains(err.Error(), "plane p7") {
		t.Errorf("a switch that does not start: %v", err)
	}
	if _, err := EnsureOCS(context.Background(), path, "/no/such/program"); err == nil ||
		!strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("no program: %v", err)
	}
	if _, err := EnsureOCS(context.Background(), path+".none", self); err == nil ||
		!strings.Contains(err.Error(), "fabric.yaml.none") {
		t.Errorf("no fabric file: %v", err)
	}
}
