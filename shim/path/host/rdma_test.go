package host_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// TestOracleRDMA: every collective over queue pairs.
func TestOracleRDMA(t *testing.T) {
	for _, c := range []struct {
		ranks, devices, planes int
		hcas, mode             string
	}{{2, 1, 1, "", "auto"}, {3, 2, 2, "mem", "uc"}, {4, 4, 2, "=mem3:1:1:1,mem2:1:0:1,mem1:1:1:0,mem0:1:0:0", "rc"}} {
		t.Run(fmt.Sprintf("%dx%d-%s", c.ranks, c.planes, c.mode), func(t *testing.T) {
			shimtest.UseRDMA(t, c.devices, c.planes)
			t.Setenv("LIGHTPATH_RDMA_MODE", c.mode)
			t.Setenv("NCCL_IB_HCA", c.hcas)
			w := shimtest.NewWorld(t, c.ranks)
			rng := rand.New(rand.NewPCG(uint64(c.ranks), 4))
			for _, size := range []int{0, 1, 1023, 20001} {
				for _, kind := range shimtest.OracleKinds {
					require.NoError(t, shimtest.RandomCollective(rng, kind, c.ranks, size).Run(w, rng))
				}
			}
			w.Destroy()
		})
	}
}

// TestLostRDMA: a queue pair that gets no answer is an error on every rank, which names the rank
// and the plane.
func TestLostRDMA(t *testing.T) {
	n, _ := shimtest.UseRDMA(t, 2, 2)
	w := shimtest.NewWorld(t, 3)
	buf := make([][]float32, 3)
	for r := range buf {
		buf[r] = make([]float32, 50000)
	}
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, buf[c.Rank])}) })
	w.SetTimeout(time.Second) // bounds the wait for the reason of another rank, too
	n.Drop(func(uint32, uint32, uint64) bool { return true })
	for r, err := range w.Each(func(c *shim.Comm) error {
		return shim.Run([]calls.Call{shimtest.AllReduce(c, buf[c.Rank])})
	}) {
		if err == nil || !strings.Contains(err.Error(), "RETRY_EXC_ERR") || !strings.Contains(err.Error(), "plane ") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	w.Destroy()
}

// TestLostRDMAAfterCall loses a message whose sender has left its call. The sender's device reports that later, so the
// receiver need not wait for its time-out.
func TestLostRDMAAfterCall(t *testing.T) {
	for _, mode := range []string{"rc", "uc"} {
		t.Run(mode, func(t *testing.T) {
			n, _ := shimtest.UseRDMA(t, 2, 1)
			t.Setenv("LIGHTPATH_RDMA_MODE", mode)
			t.Setenv("LIGHTPATH_TIMEOUT", "600s")
			w := shimtest.NewWorld(t, 2)
			n.Drop(func(uint32, uint32, uint64) bool { return true })
			var x float32
			send := calls.Call{Comm: w.Comms[0], Kind: calls.Send, Type: datatype.Float32, Count: 1, Peer: 1,
				Send: unsafe.Pointer(&x)}
			require.NoError(t, shim.Run([]calls.Call{send}))
			recv := calls.Call{Comm: w.Comms[1], Kind: calls.Recv, Type: datatype.Float32, Count: 1,
				Recv: unsafe.Pointer(&x)}
			go func() { _ = shim.Run([]calls.Call{recv}) }()
			if !shimtest.Eventually(w.Comms[1].Failed) {
				t.Fatal("the receiver waits on")
			}
			assert.Contains(t, w.Comms[1].AsyncError().Error(), "rank 0", "plane 0", "rank 1")
		})
	}
}

// TestStoppedRDMA stops a rank in the middle of calls, while its device still acknowledges data. The other rank reports
// in time that it has waited for that rank, and on which plane. When the stopped rank continues, it has an error too.
func TestStoppedRDMA(t *testing.T) {
	for mode, victims := range map[string][]int{"rc": {0, 1}, "uc": {1}} {
		for _, victim := range victims {
			t.Run(fmt.Sprintf("%s-%d", mode, victim), func(t *testing.T) {
				_, devices := shimtest.UseRDMA(t, 4, 2)
				t.Setenv("LIGHTPATH_RDMA_MODE", mode)
				t.Setenv("NCCL_IB_HCA", "=mem0:1:0:0,mem1:1:1:0,mem2:1:0:1,mem3:1:1:1")
				w := shimtest.NewWorld(t, 2)
				w.SetTimeout(700 * time.Millisecond)
				ended := make([]chan error, 2)
				for r, c := range w.Comms {
					ended[r] = make(chan error, 1)
					buf := make([]float32, 50000)
					go func() {
						for {
							if err := shim.Run([]calls.Call{shimtest.AllReduce(c, buf)}); err != nil {
								ended[r] <- err
								return
							}
						}
					}()
				}
				until := make(chan struct{})
				verbstest.Stop(devices[2+victim], until) // both planes are polled by one goroutine
				err := <-ended[1-victim]
				shimtest.WantError(t, err, errdefs.ErrTimeout, fmt.Sprintf("exec: rank %d ", 1-victim),
					fmt.Sprintf("rank %d (plane ", victim))
				select {
				case err := <-ended[victim]:
					t.Errorf("rank %d, which is stopped, says %v", victim, err)
				default:
				}
				close(until)
				if err := <-ended[victim]; err == nil {
					t.Errorf("rank %d knows of nothing", victim)
				}
				w.Destroy()
			})
		}
	}
}

// TestLostUnacknowledged: a frame that is lost where nothing is acknowledged is an error on every rank,
// which names rank, plane and epoch, and no wrong result.
func TestLostUnacknowledged(t *testing.T) {
	n, _ := shimtest.UseRDMA(t, 2, 2)
	t.Setenv("LIGHTPATH_RDMA_MODE", "uc")
	t.Setenv("NCCL_IB_TIMEOUT", "17")
	t.Setenv("NCCL_IB_RETRY_CNT", "1")
	w := shimtest.NewWorld(t, 3)
	buf := make([][]float32, 3)
	for r := range buf {
		buf[r] = make([]float32, 50000)
	}
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, buf[c.Rank])}) })
	var once sync.Once
	n.Drop(func(uint32, uint32, uint64) (lost bool) { once.Do(func() { lost = true }); return lost })
	for r, err := range w.Each(func(c *shim.Comm) error {
		return shim.Run([]calls.Call{shimtest.AllReduce(c, buf[c.Rank])})
	}) {
		shimtest.WantError(t, err, transport.ErrDark, "rank ", "plane ", "epoch ")
		if result.Of(err) != result.SystemError {
			t.Errorf("rank %d: result %d: %v", r, result.Of(err), err)
		}
	}
	w.Destroy()
}

// TestRegisteredBuffers checks that collectives send from registered buffers without a copy, in place and not, with
// later calls on the same buffers. Results are right. The network checks that no byte is written while it still has to
// be read.
func TestRegisteredBuffers(t *testing.T) {
	for _, mode := range []string{"rc", "uc"} {
		t.Run(mode, func(t *testing.T) {
			shimtest.UseRDMA(t, 2, 2)
			t.Setenv("LIGHTPATH_RDMA_MODE", mode)
			const ranks, count = 3, 30000
			w := shimtest.NewWorld(t, ranks)
			buf := make([][]int32, ranks)
			handles := make([]uint64, ranks)
			for r := range buf {
				buf[r] = make([]int32, count)
				h, err := shim.Register(w.Comms[r], unsafe.Pointer(&buf[r][0]), 4*count, false, 0)
				require.NoError(t, err)
				handles[r] = h
			}
			want := int32(1)
			for r := range buf {
				for i := range buf[r] {
					buf[r][i] = 1
				}
			}
			for range 8 {
				w.Must(func(c *shim.Comm) error {
					at := unsafe.Pointer(&buf[c.Rank][0])
					reduce := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Int32, Op: datatype.Sum,
						Count: count, Send: at, Recv: at}
					cast := calls.Call{Comm: c, Kind: calls.Broadcast, Type: datatype.Int32, Peer: 1, Count: count, Send: at, Recv: at}
					return shim.Run([]calls.Call{reduce, cast, reduce})
				})
				want *= ranks * ranks
			}
			lent := int64(0)
			for r := range buf {
				for i, v := range buf[r] {
					if v != want {
						t.Fatalf("rank %d: element %d is %d, want %d", r, i, v, want)
					}
				}
				sent := session.Of(w.Comms[r]).Packet.(*endpoints.RDMA).Traffic()
				t.Logf("rank %d: %+v", r, sent)
				lent += sent.Lent
				if _, err := shim.Registered(w.Comms[r], handles[r], false, true); err != nil {
					t.Error(err)
				}
			}
			if lent == 0 {
				t.Error("nothing was sent from where it was")
			}
			w.Destroy()
		})
	}
}

// TestNoRDMA checks that a missing part fails the creation of the communicator on every rank, and that the error names
// it.
func TestNoRDMA(t *testing.T) {
	create := func() error {
		id, err := shim.NewUniqueID()
		require.NoError(t, err)
		args := make([]shim.InitArgs, 2)
		for r := range args {
			args[r] = shim.InitArgs{ID: id, Ranks: 2, Rank: r, Device: r}
		}
		comms, err := shim.Init(args)
		if err == nil {
			(shimtest.WorldOf(t, comms)).Destroy()
		}
		return err
	}
	_, devices := shimtest.UseRDMA(t, 1, 1)
	for _, c := range []struct {
		name  string
		setup func(t *testing.T)
		is    error
		says  string
	}{
		{"no verbs", func(t *testing.T) {
			before := endpoints.UseVerbs(nil)
			t.Cleanup(func() { endpoints.UseVerbs(before) })
		}, errdefs.ErrInvalidUsage, "no RDMA verbs"},
		{"no such device", func(t *testing.T) { t.Setenv("NCCL_IB_HCA", "mlx5") }, errdefs.ErrInvalidUsage, "NCCL_IB_HCA"},
		{"no port on a plane", func(t *testing.T) {
			t.Setenv("NCCL_IB_HCA", "mem0:1:0:1")
		}, errdefs.ErrInvalidUsage, "plane 0 has no port"},
		{"no such port", func(t *testing.T) { t.Setenv("NCCL_IB_HCA", "mem0:3") }, nil, "mem0:3"},
		{"no such address", func(t *testing.T) { t.Setenv("NCCL_IB_GID_INDEX", "9") }, nil, "no GID 9"},
		{"port down", func(*testing.T) {
			verbstest.SetPort(devices[0], rdma.PortInfo{State: "DOWN"})
		}, nil, "port 1 is DOWN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.setup(t)
			err := create()
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if errors.Is(err, transport.ErrPeerLost) {
				t.Errorf("%v: the rank at fault was not the one to speak", err)
			}
		})
	}
}
