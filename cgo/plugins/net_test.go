package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/netplugin"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
	"lightpath/shim/endpoints"
	"lightpath/shim/shimtest"
)

// optionsEnv tells the test plugin how to fail: see testdata/net.c.
const optionsEnv = "LIGHTPATH_TEST_NET"

var built struct {
	sync.Mutex
	dir   string
	files map[string]string
}

// build compiles the test plugin, once for each set of flags.
func build(t testing.TB, flags ...string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "netplugin")
		require.NoError(t, err)
		built.dir, built.files = dir, map[string]string{}
	}
	name := strings.Join(flags, "")
	if built.files[name] == "" {
		file := filepath.Join(built.dir, fmt.Sprintf("libnccl-net-test%s.so", name))
		compile(t, file, "testdata/net.c", flags...)
		built.files[name] = file
	}
	return built.files[name]
}

// compile compiles a plugin.
func compile(t testing.TB, to, from string, flags ...string) {
	t.Helper()
	args := append(flags, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I.", "-o", to, from)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %v: %v\n%s", args, err, out)
	}
}

// version compiles the test plugin with a version of the interface.
func version(t testing.TB, v int) string { return build(t, fmt.Sprintf("-DVERSION=%d", v)) }

// TestMain gives plugins also to the ranks that tests start as processes.
func TestMain(m *testing.M) {
	endpoints.UseNetPlugins(Net{})
	code := shimtest.Run(m, nil)
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// lines are the warnings of a plugin.
type lines struct {
	sync.Mutex
	warnings []string
}

func (l *lines) log(warn bool, line string) {
	l.Lock()
	defer l.Unlock()
	if warn {
		l.warnings = append(l.warnings, line)
	}
}

// open opens the plugin for a rank. At the end of the test it closes the plugin, which must not have warned.
func open(t testing.TB, file string) netplugin.Plugin {
	t.Helper()
	var l lines
	p, err := Net{}.Open([]string{file}, netplugin.OpenOptions{Comm: 0xc0, Log: l.log})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		for _, w := range l.warnings {
			if !strings.HasPrefix(w, "closed with") && !strings.HasSuffix(w, "as asked") {
				t.Errorf("the plugin says %q", w)
			}
		}
	})
	return p
}

// connect returns the endpoints of all ranks of a communicator, each with the devices 0, 1 and so on.
func connect(t testing.TB, file string, ranks, planes int, linger time.Duration) ([]transport.Endpoint, []error) {
	t.Helper()
	all := make([]*netplugin.Rank, ranks)
	addrs := make([]netplugin.Addrs, ranks)
	endpoints, errs := make([]transport.Endpoint, ranks), make([]error, ranks)
	for r := range all {
		p := open(t, file)
		devices := make([]int, planes)
		for j := range devices {
			devices[j] = j % len(p.Devices())
		}
		l, err := netplugin.Listen(netplugin.ListenOptions{Rank: r, Ranks: ranks, Plugin: p, Devices: devices})
		if err != nil {
			errs[r] = err
			return nil, errs
		}
		all[r], addrs[r] = l, l.Addrs()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for r, l := range all {
		wg.Go(func() {
			e, err := netplugin.Connect(ctx, l, netplugin.Options{Addrs: addrs, Linger: linger})
			if errs[r] = err; err != nil {
				cancel() // the others wait for connections that never come
				return
			}
			endpoints[r] = e
		})
	}
	wg.Wait()
	return endpoints, errs
}

func connected(t testing.TB, file string, ranks, planes int) []transport.Endpoint {
	t.Helper()
	e, errs := connect(t, file, ranks, planes, time.Millisecond)
	for _, err := range errs {
		require.NoError(t, err)
	}
	return e
}

// TestNoAllocation: sending without [transport.Plane.TrySend] allocates nothing either, for one frame and for many.
func TestNoAllocation(t *testing.T) {
	for _, size := range []int{8, 700 << 10} {
		e := connected(t, version(t, newest), 2, 1)
		from, to := e[0].Planes()[0].(transport.Borrower), e[1].Planes()[0]
		payload, h := make([]byte, size), new(wire.Header)
		round := func() {
			*h = wire.Header{Dst: 1}
			var mark, returned uint64
			for sent, got := 0, 0; got < size || returned < mark; {
				n, m, err := from.Lend(h, payload[sent:])
				sent, h.Offset, mark = sent+n, h.Offset+uint64(n), max(mark, m)
				f, data, err2 := to.Peek(0)
				if f != nil {
					got += len(data)
					to.Release(0)
				}
				var err3 error
				if returned, err3 = from.Returned(1, true); err != nil || err2 != nil || err3 != nil {
					panic(errors.Join(err, err2, err3))
				}
			}
		}
		if n := testing.AllocsPerRun(10, round); n != 0 {
			t.Errorf("%v allocations for %d bytes", n, size)
		}
		transporttest.Close(t, e[0], e[1])
	}
}

// TestConformance runs the suite of transports with plugins of the oldest and newest version, and with slow and
// stubborn plugins. [TestCommunicators] uses the versions between.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		version       int
		name, options string
	}{
		{oldest, "plain", ""}, {newest, "plain", ""}, {newest, "late", "late=3"}, {newest, "reorder", "reorder"},
		{newest, "refusing", "refuse=20 limit=1000 multi"},
	} {
		t.Run(fmt.Sprintf("v%d-%s", c.version, c.name), func(t *testing.T) {
			t.Setenv(optionsEnv, c.options)
			file := version(t, c.version)
			transporttest.Run(t, transporttest.Config{
				PeerLoss: true,
				Open: func(t testing.TB, ranks, planes int) []transport.Endpoint {
					return connected(t, file, ranks, planes)
				},
			})
		})
	}
}
