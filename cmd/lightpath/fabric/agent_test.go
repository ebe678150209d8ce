package fabric

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/kernel/agent"
	"lightpath/ocsctl/kernel/kerneltest"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// freeAddress returns a free port of the loopback interface.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

const hostsFile = `version: 1
name: hosts%d
hosts: [{name: h1, ranks: 2, address: "%s"}, {name: h2, ranks: 1}]
planes: [{name: p0, bandwidth: 1Gbps, ocs: o, interface: %s}]
ocs: [{name: o, driver: emulator, endpoint: "unix:/nowhere", reconfig: 1ms}]
`

// A host's part of a fabric has commands of its own, and an agent that writes its circuits.
func TestFabricOfOneHost(t *testing.T) {
	hosts := kerneltest.Hosts(t, 1, 1, 1500)
	file := clitest.Write(t, "fabric.yaml", fmt.Sprintf(hostsFile, os.Getpid(), freeAddress(t), kerneltest.Interface(0)))
	f, err := fabric.Load(file)
	require.NoError(t, err)
	name := kernel.NameOn(f, "h1")
	t.Cleanup(func() {
		if _, err := kernel.Down(name, true); err != nil {
			t.Error(err)
		}
	})
	if o := lightpath.Run(t, "", "fabric", "agent", "--fabric", file, "--host", "h1"); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "not up") {
		t.Errorf("agent of nothing: %+v", o)
	}
	if out := lightpath.Succeed(t, "", "fabric", "up", "--fabric", file, "--host", "h1", "--underlay", hosts[0], "--mtu",
		"1500"); !strings.Contains(out, name+": up: 2 ranks, 1 planes") {
		t.Errorf("up: %s", out)
	}
	if out := lightpath.Succeed(t, "", "fabric", "status", "--fabric", file, "--host", "h1"); !strings.Contains(out,
		"10.100.0.2") ||
		strings.Contains(out, "10.100.0.3") {
		t.Errorf("status: %s", out)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runAgent(ctx, f, "h1", f.Hosts[0].Address, agent.TLS{}) }()
	alone := *f // the part of the fabric on the host with an agent
	alone.Hosts, alone.Ranks = alone.Hosts[:1], 2
	for {
		// The digest is another: that the agent says so shows that it serves.
		_, err := agent.Dial(ctx, &alone, agent.TLS{})
		if err == nil || strings.Contains(err.Error(), "from another file") {
			break
		}
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
	state, err := kernel.Load(name)
	require.NoError(t, err)
	if b, err := kernel.Open(state); err == nil {
		t.Error("the agent's circuits have another writer", b.Close())
	}
	stop()
	assert.NoError(t, <-done)
	v, err := kernel.Look(state)
	require.NoError(t, err)
	if m, err := v.Map(0); err != nil || !m.Equal(circuit.AllDark(3)) {
		t.Errorf("map %v %v", m, err)
	}
	assert.NoError(t, v.Close())
	if out := lightpath.Succeed(t, "", "fabric", "down", "--fabric", file, "--host", "h1"); !strings.Contains(out,
		name+": down") {
		t.Errorf("down: %s", out)
	}
}

func TestFabricAgentRefuses(t *testing.T) {
	file := clitest.Write(t, "fabric.yaml", fmt.Sprintf(hostsFile, os.Getpid(), "127.0.0.1:1", "e0"))
	for _, c := range []struct {
		says []string
		args []string
	}{
		{[]string{"--fabric and --host are required"}, []string{"agent"}},
		{[]string{"--host is required"}, []string{"agent", "--fabric", file}},
		{[]string{`no host "h9"`}, []string{"agent", "--fabric", file, "--host", "h9"}},
		{[]string{"hosts[1]: address: missing"}, []string{"agent", "--fabric", file, "--host", "h2"}},
		{[]string{"--name and --host"}, []string{"down", "--name", "x", "--host", "h1"}},
	} {
		lightpath.Refuse(t, "", c.says, append([]string{"fabric"}, c.args...)...)
	}
	lightpath.Refuse(t, "", []string{"--launch: missing; the fabric has 2 hosts"}, "fabric", "calibrate", "--fabric", file)
	lightpath.Refuse(t, "", []string{`--launch: "ssh h2" has no {host}`}, "fabric", "calibrate", "--fabric", file,
		"--launch", "ssh h2")
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	lightpath.Refuse(t, "", []string{"hosts: 2"}, "fabric", "up", "--fabric", file)
	lightpath.Refuse(t, "", []string{`none is "h9"`}, "fabric", "up", "--fabric", file, "--host", "h9")
}
