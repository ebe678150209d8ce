package plugins

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/netplugin"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

// useNet makes communicators use a plugin that fails as options say, on two planes.
func useNet(t *testing.T, plugin, options string) {
	t.Helper()
	t.Setenv("LIGHTPATH_TRANSPORT", "net")
	t.Setenv("LIGHTPATH_PLANES", "2")
	t.Setenv("LIGHTPATH_TIMEOUT", "60s")
	if code, err := os.ReadFile(plugin); err == nil && strings.HasSuffix(plugin, ".so") {
		// A copy of a library is another library for the loader, so its counters of calls begin at 0.
		plugin = filepath.Join(t.TempDir(), "libnccl-net-copy.so")
		require.NoError(t, os.WriteFile(plugin, code, 0o755))
	}
	t.Setenv("NCCL_NET_PLUGIN", plugin)
	t.Setenv(optionsEnv, options)
}

// exchange sends count elements from every rank to every other rank in one group, and checks them.
func exchange(w *shimtest.World, count int) []error {
	n := len(w.Comms)
	return w.Each(func(c *shim.Comm) error {
		me := c.Rank
		var group []calls.Call
		in := make([][]int32, n)
		for peer := range n {
			out := make([]int32, count)
			for i := range out {
				out[i] = int32(me*n + peer + i)
			}
			in[peer] = make([]int32, count)
			call := calls.Call{Comm: c, Kind: calls.Send, Type: datatype.Int32, Peer: int32(peer), Count: uint64(count),
				Send: unsafe.Pointer(unsafe.SliceData(out))}
			group = append(group, call)
			call.Kind, call.Send, call.Recv = calls.Recv, nil, unsafe.Pointer(unsafe.SliceData(in[peer]))
			group = append(group, call)
		}
		if err := shim.Run(group); err != nil {
			return err
		}
		for peer := range in {
			for i, v := range in[peer] {
				if v != int32(peer*n+me+i) {
					return fmt.Errorf("rank %d: element %d from rank %d is %d", me, i, peer, v)
				}
			}
		}
		return nil
	})
}

// TestCommunicators makes communicators over plugins of every version, and over slow and stubborn ones.
func TestCommunicators(t *testing.T) {
	type setup struct {
		version int
		options string
	}
	setups := []setup{{newest, "late=3"}, {newest, "reorder"}, {newest, "refuse=20 multi"}, {newest, "limit=4096"}}
	for v := oldest; v <= newest; v++ {
		setups = append(setups, setup{v, ""})
	}
	for _, s := range setups {
		t.Run(fmt.Sprintf("v%d-%s", s.version, s.options), func(t *testing.T) {
			useNet(t, version(t, s.version), s.options)
			t.Setenv("NCCL_DEBUG_SUBSYS", "NET")
			log := shimtest.UseLogFile(t, "INFO")
			ranks := 2 + s.version%2
			w := shimtest.NewWorld(t, ranks)
			rng := rand.New(rand.NewPCG(uint64(s.version), 1))
			for _, count := range []int{1, 40001} {
				w.RunAll(t, rng, count)
				shimtest.NoErrors(t, exchange(w, count))
			}
			w.Destroy()
			for _, c := range w.Comms {
				<-c.Released()
			}
			for _, want := range []string{
				fmt.Sprintf("rank 1 uses plugin Unix (v%d): unix0 on plane 0, unix1 on plane 1", s.version),
				"plugin: test plugin, version"} {
				if !strings.Contains(log(), want) && (s.version >= 11 || !strings.HasPrefix(want, "plugin")) {
					t.Errorf("the log lacks %q", want)
				}
			}
			for _, bad := range []string{"wrong call", "closed with"} {
				if strings.Contains(log(), bad) {
					t.Errorf("the plugin says %q:\n%s", bad, log())
				}
			}
		})
	}
}

// create makes a communicator of two ranks, and destroys it. It returns the errors of the ranks that could not.
func create(t *testing.T) []error {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	cfg, err := settings.Load()
	require.NoError(t, err)
	return shimtest.Concurrently(t, 2, func(r int) error {
		c, err := shimtest.InitOne(shim.InitArgs{ID: id, Ranks: 2, Rank: r, Device: r}, cfg)
		if err == nil {
			err = c.Destroy()
			<-c.Released()
		}
		return err
	})
}

// TestUnusablePlugins: a plugin that is missing or of no use is one line that names it.
func TestUnusablePlugins(t *testing.T) {
	good := version(t, newest)
	for _, c := range []struct{ name, plugin, options, says string }{
		{"none", "none", "", "NCCL_NET_PLUGIN=none names no plugin"},
		{"default", "", "", "no such file: libnccl-net.so"},
		{"missing", "absent", "", "no such file: absent, libnccl-net-absent.so"},
		{"two", "absent,/no/such.so", "", "libnccl-net-absent.so; plugin cannot be used: no such file: /no/such.so"},
		{"no library", "testdata/net.c", "", "testdata/net.c: "},
		{"no symbol", "libm.so.6", "", "libm.so.6: it has no ncclNetPlugin_v6 to ncclNetPlugin_v12"},
		{"newer", version(t, newest+1), "", "its interface is ncclNetPlugin_v13, want a version from 6 to 12"},
		{"no devices", good, "count=0", "network plugin Unix (v12) has no devices"},
		{"no host memory", good, "nohost", "device 0 of network plugin Unix (v12) does not support host memory"},
		{"one device", good, "count=1",
			"LIGHTPATH_PLANES=2: network plugin Unix (v12) has no device on one of the planes (unix0)"},
		{"init", good, "init=0 code=2", "network plugin Unix (v12): init returned 2 (ncclSystemError)"},
		{"devices", good, "devices=0 code=7", "network plugin Unix (v12): devices returned 7 (ncclInProgress)"},
		{"getProperties", good, "getProperties=1", "network plugin Unix (v12): getProperties returned 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			useNet(t, c.plugin, c.options)
			err := create(t)[0]
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") ||
				!errors.Is(err, errdefs.ErrInvalidUsage) {
				t.Errorf("%v\nwant %q", err, c.says)
			}
		})
	}
	t.Run("second", func(t *testing.T) {
		useNet(t, "absent,"+good, "")
		shimtest.NoErrors(t, create(t))
	})
	t.Run("other network", func(t *testing.T) {
		useNet(t, good, "")
		t.Setenv("NCCL_NET", "AWS Libfabric")
		if err := create(t)[0]; err == nil || !strings.Contains(err.Error(), `its network is "Unix", not "AWS Libfabric"`) {
			t.Error(err)
		}
	})
	t.Run("no loader", func(t *testing.T) {
		useNet(t, good, "")
		before := endpoints.UseNetPlugins(nil)
		t.Cleanup(func() { endpoints.UseNetPlugins(before) })
		if err := create(t)[0]; err == nil || !strings.Contains(err.Error(), "this program loads no network plugins") {
			t.Error(err)
		}
	})
}

// TestFailingFunctions: an error of a plugin's function names it, its code, ranks and plane, when communicators are
// made and in calls.
func TestFailingFunctions(t *testing.T) {
	file := version(t, newest)
	for _, c := range []struct{ function, options string }{
		{"listen", "listen=3"}, {"connect", "connect=2"}, {"accept", "accept=1"}, {"regMr", "regMr=3"},
		{"irecv", "irecv=0"},
	} {
		t.Run(c.function, func(t *testing.T) {
			useNet(t, file, c.options+" code=5")
			err := errors.Join(create(t)...)
			want := fmt.Sprintf("network plugin Unix (v12): %s returned 5 (ncclInvalidUsage)", c.function)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "plane ") ||
				!strings.Contains(err.Error(), "rank ") || !errors.Is(err, netplugin.ErrPlugin) {
				t.Errorf("%v\nwant %q", err, want)
			}
		})
	}
	for _, function := range []string{"isend", "irecv", "test"} {
		for code, name := range map[int]string{6: "ncclRemoteError", 3: "ncclInternalError"} {
			t.Run(fmt.Sprintf("%s-%d", function, code), func(t *testing.T) {
				useNet(t, file, fmt.Sprintf("%s=300 code=%d", function, code))
				w := shimtest.NewWorld(t, 2)
				var all []string
				for r, err := range w.Each(reduceForever) {
					if code == 6 && !errors.Is(err, transport.ErrPeerLost) {
						t.Errorf("rank %d: %v", r, err)
					}
					all = append(all, err.Error())
				}
				want := fmt.Sprintf("%s returned %d (%s)", function, code, name)
				text := strings.Join(all, "\n")
				if !strings.Contains(text, want) || !strings.Contains(text, "plane ") || !strings.Contains(text, "rank 1") {
					t.Errorf("%s\nwant %q", text, want)
				}
				for _, c := range w.Comms {
					_ = c.Abort()
				}
			})
		}
	}
	for _, function := range []string{"deregMr", "closeSend", "closeRecv", "closeListen", "finalize"} {
		t.Run(function, func(t *testing.T) {
			useNet(t, file, function+"=0")
			log := shimtest.UseLogFile(t, "INFO")
			if err := errors.Join(create(t)...); function == "closeListen" && !errors.Is(err, netplugin.ErrPlugin) {
				t.Errorf("%v", err)
			}
			want := "network plugin Unix (v12): " + function + " returned 3 (ncclInternalError)"
			if function != "closeListen" && !strings.Contains(log(), want) {
				t.Errorf("the log lacks %q", want)
			}
		})
	}
}

func reduceForever(c *shim.Comm) error {
	for {
		buf := make([]float32, 20000)
		if err := shim.Run([]calls.Call{shimtest.AllReduce(c, buf)}); err != nil {
			return err
		}
	}
}

// TestWrongSizes: no size that a plugin gives becomes data, nor an access outside a slot.
func TestWrongSizes(t *testing.T) {
	for _, size := range []string{"-1", "8", "100", "2000000000"} {
		useNet(t, version(t, newest), "size="+size)
		w := shimtest.NewWorld(t, 2)
		for r, err := range w.Each(reduceForever) {
			if err == nil || !strings.Contains(err.Error(), transport.ErrCorrupt.Error()) {
				t.Errorf("%s bytes, rank %d: %v", size, r, err)
			}
		}
		for _, c := range w.Comms {
			_ = c.Abort()
		}
	}
}

// TestSilentPlugin: a plugin whose requests never become complete ends calls after LIGHTPATH_TIMEOUT.
func TestSilentPlugin(t *testing.T) {
	useNet(t, version(t, newest), "late=1000000000")
	w := shimtest.NewWorld(t, 2)
	w.SetTimeout(time.Second)
	for r, err := range w.Each(reduceForever) {
		if !errors.Is(err, errdefs.ErrTimeout) && !strings.Contains(fmt.Sprint(err), "no progress") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for _, c := range w.Comms {
		_ = c.Abort()
	}
}
