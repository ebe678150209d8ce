package tcp

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/require"
)

// Environment variable of a rank that runs in another process: see TestProcesses.
const envRank = "LIGHTPATH_TEST_RANK"

const (
	processRanks    = 3
	processPlanes   = 2
	processMessages = 15
)

var secret = [SecretSize]byte{1, 2, 3}

func TestMain(m *testing.M) {
	if rank := os.Getenv(envRank); rank != "" {
		if err := child(rank); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// listen returns a listener per rank and their addresses.
func listen(t testing.TB, host string, ranks int) ([]*Listener, []string) {
	t.Helper()
	var ls []*Listener
	var addrs []string
	for range ranks {
		l, err := Listen(host)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() }) // some tests have closed it before
		ls, addrs = append(ls, l), append(addrs, l.Addr())
	}
	return ls, addrs
}

// connect returns the endpoints of all ranks of a communicator, in this process.
func connect(t testing.TB, host string, ranks, planes int) []transport.Endpoint {
	t.Helper()
	ls, addrs := listen(t, host, ranks)
	return connectAll(t, ls, addrs, planes)
}

func connectAll(t testing.TB, ls []*Listener, addrs []string, planes int) []transport.Endpoint {
	t.Helper()
	ranks := len(ls)
	endpoints := make([]transport.Endpoint, ranks)
	errs := make([]error, ranks)
	var wg sync.WaitGroup
	for rank := range ranks {
		wg.Go(func() {
			endpoints[rank], errs[rank] = Connect(limit(t), ls[rank],
				Options{Rank: rank, Planes: planes, Addrs: addrs, Comm: 5, Secret: secret})
		})
	}
	wg.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return endpoints
}

func suite(host string) transporttest.Config {
	return transporttest.Config{
		PeerLoss: true,
		Open: func(t testing.TB, ranks, planes int) []transport.Endpoint {
			return connect(t, host, ranks, planes)
		},
	}
}

func TestConformance(t *testing.T) { transporttest.Run(t, suite("127.0.0.1:0")) }

func TestIPv6(t *testing.T) {
	l, err := Listen("[::1]:0")
	if err != nil {
		t.Skipf("this host has no IPv6 loopback: %v", err)
	}
	transporttest.Close(t, l)
	c := suite("[::1]:0")
	e := c.Open(t, 2, 2)
	c.Exchange(t, e, 5)
	transporttest.Close(t, e[0], e[1])
}

func TestOneRank(t *testing.T) {
	e := connect(t, "127.0.0.1:0", 1, 2)
	defer transporttest.Close(t, e[0])
	for _, p := range e[0].Planes() {
		if ok, err := p.Drained(); !ok || err != nil {
			t.Errorf("Drained: %v, %v", ok, err)
		}
	}
}

// TestProcesses runs random traffic between processes, which run this test binary. Each process prints its address and
// reads the addresses of all ranks.
func TestProcesses(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer transporttest.Close(t, l)
	addrs := []string{l.Addr()}
	var wait []func() error
	var table []func(string) error
	for rank := 1; rank < processRanks; rank++ {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), envRank+"="+strconv.Itoa(rank))
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewReader(out)
		addr, err := lines.ReadString('\n')
		require.NoError(t, err)
		addrs = append(addrs, strings.TrimSpace(addr))
		table = append(table, func(s string) error { _, err := fmt.Fprintln(in, s); return err })
		wait = append(wait, func() error {
			said, _ := lines.ReadString(0)
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("rank %d: %w: %s", rank, err, said)
			}
			return nil
		})
	}
	for _, tell := range table {
		require.NoError(t, tell(strings.Join(addrs, " ")))
	}
	if err := runRank(l, 0, addrs); err != nil {
		t.Errorf("rank 0: %v", err)
	}
	for _, w := range wait {
		if err := w(); err != nil {
			t.Error(err)
		}
	}
}

func runRank(l *Listener, rank int, addrs []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := Connect(ctx, l, Options{Rank: rank, Planes: processPlanes, Addrs: addrs, Secret: secret})
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	return suite("").Rank(e, rank, processRanks, processMessages, func(done bool) bool { return done })
}

func child(rank string) error {
	r, err := strconv.Atoi(rank)
	if err != nil {
		return err
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	fmt.Println(l.Addr())
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	return runRank(l, r, strings.Fields(line))
}

func BenchmarkTCP(b *testing.B) { suite("127.0.0.1:0").Benchmark(b) }
