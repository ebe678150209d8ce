package host

import (
	"encoding/json"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/require"
	"lightpath/shim/settings"
	"lightpath/shim/topology"
)

// TestGPUDirectFinding: what keeps memory of GPUs from RDMA ports, and that it is a fault only where it is asked for.
func TestGPUDirectFinding(t *testing.T) {
	gpus := []topology.GPU{{}, {}}
	ports := func(state string) []topology.RDMA {
		return []topology.RDMA{{Name: "mlx5_0", Ports: []topology.Port{{Number: 1, State: state}}}}
	}
	for _, c := range []struct {
		m        topology.Machine
		variable string
		ok       bool
		text     string
	}{
		{topology.Machine{RDMA: ports("ACTIVE")}, "", true, "no GPU"},
		{topology.Machine{RDMA: ports("ACTIVE")}, "LIGHTPATH_DEVICE_PATH=rdma", false, "no GPU"},
		{topology.Machine{GPUs: gpus, RDMA: ports("DOWN")}, "", true, "no active RDMA port"},
		{topology.Machine{GPUs: gpus}, "LIGHTPATH_DEVICE_PATH=rdma", false, "no active RDMA port"},
		{topology.Machine{GPUs: gpus, RDMA: ports("ACTIVE")}, "NCCL_NET_GDR_LEVEL=LOC", true,
			"not used: NCCL_NET_GDR_LEVEL=LOC"},
		{topology.Machine{GPUs: gpus, RDMA: ports("ACTIVE")}, "LIGHTPATH_DEVICE_PATH=staged", true,
			"not used: LIGHTPATH_DEVICE_PATH=staged"},
		{topology.Machine{GPUs: gpus, RDMA: ports("ACTIVE")}, "", true, "GPUs: 2, active ports: mlx5_0:1"},
		{topology.Machine{GPUs: gpus}, "LIGHTPATH_TRANSPORT=net", true, "the network plugin (LIGHTPATH_TRANSPORT=net)"},
	} {
		t.Run(c.text+" "+c.variable, func(t *testing.T) {
			if name, value, set := strings.Cut(c.variable, "="); set {
				t.Setenv(name, value)
			}
			s, err := settings.Load()
			require.NoError(t, err)
			if f := gpuDirect(&c.m, s); f.OK != c.ok || !strings.Contains(f.Detail, c.text) {
				t.Errorf("%+v, want %t, %q", f, c.ok, c.text)
			}
		})
	}
}

func TestDoctor(t *testing.T) {
	t.Setenv("NCCL_DEBUG", "INFO")
	text := lightpath.Succeed(t, "", "doctor", "--env")
	for _, name := range []string{"LIGHTPATH_TRANSPORT", "LIGHTPATH_FABRIC", "LIGHTPATH_PLANNER", "LIGHTPATH_TIMEOUT",
		"NCCL_DEBUG", "NCCL_DEBUG_FILE",
		"NCCL_DEBUG_SUBSYS", "NCCL_SOCKET_IFNAME", "NCCL_COMM_ID"} {
		if !strings.Contains(text, name+" (") {
			t.Errorf("doctor --env does not list %s", name)
		}
	}
	if !strings.Contains(text, "now: INFO") {
		t.Error("doctor --env does not say what NCCL_DEBUG is")
	}
	var rows []map[string]string
	if err := json.Unmarshal([]byte(lightpath.Succeed(t, "", "doctor", "--env", "--json")), &rows); err != nil ||
		len(rows) != len(settings.Vars()) || rows[0]["name"] != settings.Vars()[0].Name {
		t.Errorf("doctor --env --json: %d rows, %v", len(rows), err)
	}
	// Beside a test binary there is no installation: unhealthy, status 1, in both forms.
	o := lightpath.Run(t, "", "doctor")
	if o.Status != cli.ExitNo || !strings.Contains(o.Stdout, "FAIL libnccl.so.2") ||
		!strings.Contains(o.Stdout, "ok   version") {
		t.Errorf("doctor: %+v", o)
	}
	var findings []finding
	o = lightpath.Run(t, "", "doctor", "--json")
	if err := json.Unmarshal([]byte(o.Stdout), &findings); err != nil || o.Status != cli.ExitNo || len(findings) == 0 {
		t.Errorf("doctor --json: %+v, %v", o, err)
	}
}
