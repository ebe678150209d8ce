package scpi_test

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/scpi"
)

// TestPyVISA has a client that others wrote drive the model.
func TestPyVISA(t *testing.T) {
	python := ""
	for _, p := range []string{"python3", "/usr/bin/python3"} { // Debian's packages are of the latter
		if exec.Command(p, "-c", "import pyvisa, pyvisa_py").Run() == nil {
			python = p
			break
		}
	}
	if python == "" {
		t.Skip("PyVISA with pyvisa-py is not installed")
	}
	d, err := device.New(device.Config{Ports: 8})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- scpi.Serve(ctx, l, d) }()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	out, err := exec.CommandContext(ctx, python, "testdata/visa.py", port).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("%v: %s", err, out)
	}
	if d.Revision() == 0 {
		t.Error("the switch was not touched")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
