package transporttest

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"lightpath/internal/require"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/fabric"
)

// fabrics counts the kernel fabrics of this process, for their names.
var fabrics atomic.Int32

// KernelFabric creates a fabric of kernel planes on this host and removes it when the test ends. All planes have the
// same rate. Each rank has the interfaces p0, p1, ... All circuits are dark.
func KernelFabric(t testing.TB, ranks, planes int, rate string, forwarding bool) *kernel.State {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	text := fmt.Sprintf("version: 1\nname: tF%d-%d\nranks: %d\nforwarding: %v\nplanes:\n",
		os.Getpid(), fabrics.Add(1), ranks, forwarding)
	for j := range planes {
		text += fmt.Sprintf("  - {name: plane%d, bandwidth: %s, ocs: ocs0, interface: p%d}\n", j, rate, j)
	}
	f, err := fabric.Decode([]byte(text + "ocs:\n  - {name: ocs0, driver: emulator, reconfig: 2ms}\n"))
	require.NoError(t, err)
	s, down, err := kernel.Temporary(f, kernel.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := down(); err != nil {
			t.Error(err)
		}
	})
	return s
}
