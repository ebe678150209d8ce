package nic_test

import (
	"fmt"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/shimtest"
)

// TestGPUDirectKilled ends a rank in the middle of collectives over RDMA ports, without closing anything: its ports go
// silent. If a process is killed, its system also ends its control connection. If its host is gone, only the ports show
// it. The others fail, naming the rank, and the plane if a port has reported it. Their streams go on. The network
// checks at the end that no queue pair or memory of theirs is left at the ports. RDMA ports in memory belong to one
// process. So the test kills a rank's ports and its connection, and stops the goroutine that polls the ports.
func TestGPUDirectKilled(t *testing.T) {
	const ranks, planes, victim = 3, 2, 2
	for name, says := range map[string][]string{
		"process": {fmt.Sprintf("rank %d", victim)},
		"host":    {fmt.Sprintf("rank %d", victim), "plane", "RETRY_EXC"},
	} {
		t.Run(name, func(t *testing.T) {
			g := shimtest.UseGPUDirectOn(t, ranks, 1, planes, ranks*planes)
			var ports []string // of plane j those of rank r, as its rail
			for i := range ranks * planes {
				ports = append(ports, fmt.Sprintf("mem%d:1:%d:%d", i, i/planes, i%planes))
			}
			t.Setenv("NCCL_IB_HCA", "="+strings.Join(ports, ","))
			w := shimtest.NewWorld(t, ranks)
			const count = 300000
			launch := func() {
				t.Helper()
				for r, c := range w.Comms {
					at := g.Memory(r, count)
					call := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at,
						Stream: g.Streams[r][0]}
					require.NoError(t, shim.Run([]calls.Call{call}))
				}
			}
			launch()
			for r := range w.Comms {
				require.NoError(t, g.SynchronizeRank(r))
			}
			g.Network.Hold(true)
			for range 3 {
				launch()
			}
			buried := make(chan struct{})
			for _, d := range g.Ports[victim*planes:] {
				verbstest.Kill(d, buried)
			}
			if name == "process" {
				w.Comms[victim].Star.Close()
			}
			g.Network.Hold(false)
			for r, c := range w.Comms[:victim] {
				<-c.FailedChan()
				for _, want := range says {
					if err := c.AsyncError(); !strings.Contains(err.Error(), want) {
						t.Errorf("rank %d does not say %q: %v", r, want, err)
					}
				}
				if err := g.SynchronizeRank(r); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			for _, c := range w.Comms[:victim] {
				_ = c.Destroy()
				<-c.Released()
			}
			close(buried) // its system would clear up
			_ = w.Comms[victim].Abort()
			<-w.Comms[victim].Released()
			if err := g.SynchronizeRank(victim); err != nil {
				t.Error(err)
			}
		})
	}
}
