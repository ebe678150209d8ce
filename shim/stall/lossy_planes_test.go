package stall_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/ocsctl/kernel/kerneltest"
	"lightpath/ocsctl/kernel/loss"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/shimtest"
)

// lossyRank is a process that is a rank of two communicators: one over all planes, one over plane 0
// alone.
type lossyRank struct {
	wide, narrow *shim.Comm
}

// lossyProcess does what standard input says, each line on a goroutine of its own, and repeats the
// line with what has come of it.
func lossyProcess() int {
	var a shim.InitArgs
	if _, err := fmt.Sscan(os.Getenv("LP_TEST_RANK"), &a.Rank, &a.Ranks); err != nil {
		panic(err)
	}
	var comms [2]*shim.Comm
	for i, planes := range []string{os.Getenv("LIGHTPATH_PLANES"), "1"} {
		if err := os.Setenv("LIGHTPATH_PLANES", planes); err != nil {
			panic(err)
		}
		// no other process is in this namespace
		if err := os.Setenv("NCCL_COMM_ID", fmt.Sprintf("10.77.0.1:%d", 4713+i)); err != nil {
			panic(err)
		}
		id, err := shim.NewUniqueID()
		if err != nil {
			panic(err)
		}
		a.ID = id
		all, err := shim.Init([]shim.InitArgs{a})
		if err != nil {
			fmt.Println("init:", err)
			return 1
		}
		comms[i] = all[0]
	}
	r := lossyRank{comms[0], comms[1]}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		go func(line string) {
			if err := r.do(line); err != nil {
				fmt.Printf("%s: %v\n", line, err)
				return
			}
			fmt.Printf("%s: done\n", line)
		}(lines.Text())
	}
	return 0
}

func (r lossyRank) do(line string) error {
	var seed uint64
	var limit time.Duration
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "everything":
		if _, err := fmt.Sscan(rest, &seed); err != nil {
			return err
		}
		return r.everything(seed)
	case "reduce":
		return r.reduce(heldCount)
	case "reduce-much":
		return r.reduce(1 << 20)
	case "exchange":
		return r.exchange()
	case "narrow":
		return shim.Run([]calls.Call{shimtest.AllReduce(r.narrow, make([]float32, 1<<18))})
	case "limited": // time passes only from here on, however long it has taken to come here
		var err error
		if limit, err = time.ParseDuration(rest); err != nil {
			return err
		}
		r.wide.Cfg.Timeout = limit
		return r.reduce(heldCount)
	default:
		return fmt.Errorf("no command")
	}
}

// everything makes collectives of every kind, from empty to sizes that use all planes, and messages, and checks this
// rank's results. All choices depend on the seed alone.
func (r lossyRank) everything(seed uint64) error {
	rank, n := r.wide.Rank, r.wide.Ranks
	w := shimtest.WorldOf(nil, make([]*shim.Comm, n))
	for i := range w.Comms {
		w.Comms[i] = &shim.Comm{Identity: comm.Identity{Rank: i, Ranks: n}} // not here
	}
	w.Comms[rank] = r.wide
	rng := rand.New(rand.NewPCG(seed, 0))
	var deeds []*shimtest.Operation
	for _, count := range []int{1, 1023, 65537} {
		for _, kind := range shimtest.OracleKinds {
			k := shimtest.Collective{Kind: kind, Type: datatype.Float32, Op: datatype.Op(rng.IntN(int(datatype.NumOps))),
				Root: rng.IntN(n), Count: count, InPlace: rng.IntN(3) == 0}
			d, err := k.Prepare(w, rng)
			if err != nil {
				return err
			}
			deeds = append(deeds, d)
		}
		deeds = append(deeds, shimtest.RandomMessages(rng, n, count).Prepare(w, int(seed)))
	}
	for _, d := range deeds {
		if err := shim.Run(d.Calls[rank]); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		if err := d.CheckRank(rank); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
	}
	return nil
}

// Elements of what follows, and what a rank sends of it on each of two planes: a ring and pairwise
// exchange send no byte twice.
const heldCount = 3 << 16

func reduceShare(n int) uint64   { return 4 * heldCount * 2 * uint64(n-1) / uint64(n) / 2 }
func exchangeShare(n int) uint64 { return 4 * heldCount * uint64(n-1) / 2 }

// reduce makes an AllReduce over all planes.
func (r lossyRank) reduce(count int) error {
	rank, n := r.wide.Rank, r.wide.Ranks
	buf := make([]float32, count)
	for i := range buf {
		buf[i] = float32(rank + i%64)
	}
	if err := shim.Run([]calls.Call{shimtest.AllReduce(r.wide, buf)}); err != nil {
		return err
	}
	for i, v := range buf {
		if v != float32(n*(n-1)/2+n*(i%64)) {
			return fmt.Errorf("element %d: sum %v", i, v)
		}
	}
	return nil
}

// exchange makes an AllToAll over all planes.
func (r lossyRank) exchange() error {
	rank, n := r.wide.Rank, r.wide.Ranks
	out, in := make([]float32, n*heldCount), make([]float32, n*heldCount)
	for i := range out {
		out[i] = float32(rank + 100*(i/heldCount) + i%16)
	}
	if err := shim.Run([]calls.Call{{
		Comm: r.wide, Kind: calls.AllToAll, Type: datatype.Float32, Count: heldCount,
		Send: unsafe.Pointer(unsafe.SliceData(out)), Recv: unsafe.Pointer(unsafe.SliceData(in)),
	}}); err != nil {
		return err
	}
	for i, v := range in {
		if v != float32(i/heldCount+100*rank+i%16) {
			return fmt.Errorf("element %d: %v", i, v)
		}
	}
	return nil
}

// lossyTalker is such a process, seen by the test.
type lossyTalker struct {
	in    io.Writer
	lines chan string // closed at its end
}

// lossyRanks starts a rank on each host and returns once all are ready.
func lossyRanks(t *testing.T, hosts []string, planes int, env ...string) []*lossyTalker {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	names := make([]string, planes)
	for j := range names {
		names[j] = kerneltest.Interface(j)
	}
	all := make([]*lossyTalker, len(hosts))
	for r, host := range hosts {
		cmd := exec.Command("ip", "netns", "exec", host, exe)
		cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=lossy", fmt.Sprintf("LP_TEST_RANK=%d %d", r, len(hosts)),
			"NCCL_SOCKET_IFNAME=="+strings.Join(names, ","),
			fmt.Sprintf("LIGHTPATH_PLANES=%d", planes), "LIGHTPATH_TRANSPORT=tcp", "LIGHTPATH_TIMEOUT=300s",
			"LIGHTPATH_ALGORITHM=allreduce:ring,alltoall:pairwise")
		cmd.Env = append(cmd.Env, env...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		w := &lossyTalker{in, make(chan string, 16)}
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				w.lines <- lines.Text()
			}
			close(w.lines)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // its status is the signal
		})
		all[r] = w
	}
	for r, w := range all {
		if line := <-w.lines; line != "ready" {
			t.Fatalf("rank %d: %q", r, line)
		}
	}
	return all
}

// tell gives a command to every rank.
func tellFiles(t *testing.T, all []*lossyTalker, command string) {
	t.Helper()
	for _, w := range all {
		if _, err := fmt.Fprintln(w.in, command); err != nil {
			t.Fatal(err)
		}
	}
}

// done waits until every rank is done, and for nothing else. A rank that waits too long reports that itself.
func done(t *testing.T, all []*lossyTalker, command string) {
	t.Helper()
	for r, w := range all {
		if line := <-w.lines; line != command+": done" {
			t.Fatalf("rank %d: %q, want %s done", r, line, command)
		}
	}
}

// lose sets the rate of loss of a plane, in both directions of all hosts.
func lose(t *testing.T, plane []*loss.Interface, rate float64) {
	t.Helper()
	for _, l := range plane {
		require.NoError(t, l.Set(rate))
	}
}

func lostFrames(plane []*loss.Interface) (lost uint64) {
	for _, l := range plane {
		_, n := l.Counts()
		lost += n
	}
	return lost
}

// TestLossyPlane: results are right where one plane loses frames, whatever the collective.
func TestLossyPlane(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		hosts, planes int
		rate          float64
	}{{2, 2, 0.01}, {3, 2, 0.05}, {2, 4, 0.05}} {
		t.Run(fmt.Sprintf("%d ranks, %d planes, %v", k.hosts, k.planes, k.rate), func(t *testing.T) {
			t.Parallel()
			hosts, ethernet := shimtest.NewHosts(t, k.hosts, k.planes)
			worse := ethernet.Lossy(t, k.planes-1)
			ranks := lossyRanks(t, hosts, k.planes, "LIGHTPATH_PLANE_SHARES=measured")
			lose(t, worse, k.rate)
			for i := 0; i == 0 || lostFrames(worse) < 10; i++ {
				command := fmt.Sprint("everything ", i)
				tellFiles(t, ranks, command)
				done(t, ranks, command)
			}
		})
	}
}

// TestHeldPlane: while plane 1 loses everything, plane 0 carries its share of an operation to the end,
// and an operation of another communicator, which ends. Then plane 1 loses nothing more, and the
// first ends, too.
func TestHeldPlane(t *testing.T) {
	t.Parallel()
	const n = 3
	hosts, ethernet := shimtest.NewHosts(t, n, 2)
	held := ethernet.Lossy(t, 1)
	ranks := lossyRanks(t, hosts, 2, "LIGHTPATH_PLANE_SHARES=even", "LIGHTPATH_HEARTBEAT=0")
	for command, share := range map[string]uint64{"reduce": reduceShare(n), "exchange": exchangeShare(n)} {
		tellFiles(t, ranks, command) // finds the paths and the ranks at their ends
		done(t, ranks, command)
		lose(t, held, 1)
		var before [n]uint64
		for r := range before {
			before[r] = ethernet.Sent(t, r, 0)
		}
		tellFiles(t, ranks, command)
		for r := range before {
			var sent uint64
			if !shimtest.Eventually(func() bool { sent = ethernet.Sent(t, r, 0) - before[r]; return sent >= share }) {
				t.Fatalf("%s: rank %d has sent %d bytes on plane 0 while plane 1 is held, of %d", command, r, sent, share)
			}
		}
		tellFiles(t, ranks, "narrow")
		done(t, ranks, "narrow") // and nothing else
		lose(t, held, 0)
		done(t, ranks, command)
	}
}

// TestLossyPlaneCarriesLess: a plane that loses frames for long gets less of the calls, and more again when it loses
// nothing.
func TestLossyPlaneCarriesLess(t *testing.T) {
	if testing.Short() {
		t.Skip("many calls over a plane that loses frames")
	}
	t.Parallel()
	hosts, ethernet := shimtest.NewHosts(t, 2, 2)
	worse := ethernet.Lossy(t, 1)
	ranks := lossyRanks(t, hosts, 2, "LIGHTPATH_PLANE_SHARES=measured")
	part := func(command string) float64 { // of what rank 0 sends in a call that plane 1 carries
		var before, sent [2]float64
		for j := range before {
			before[j] = float64(ethernet.Sent(t, 0, j))
		}
		tellFiles(t, ranks, command)
		done(t, ranks, command)
		for j := range sent {
			sent[j] = float64(ethernet.Sent(t, 0, j)) - before[j]
		}
		return sent[1] / (sent[0] + sent[1])
	}
	part("reduce") // finds the ways
	lose(t, worse, 0.1)
	least := 0.0
	if !shimtest.Eventually(func() bool { least = part("reduce"); return least < 1./20 }) {
		t.Fatalf("plane 1 carries %.3f of a call", least)
	}
	lose(t, worse, 0)
	// Each trial that succeeds gives the plane more. Each one that other work spoils doubles the time to the next, up to
	// 15 s. The calls are so large that on a busy host, too, the line takes longer than ranks wait for a processor.
	got, more := 0.0, max(1./20, 1.5*least)
	for end := time.Now().Add(5 * time.Minute); got <= more && time.Now().Before(end); {
		got = part("reduce-much")
	}
	if got <= more {
		t.Fatalf("plane 1, which loses nothing more, carries %.3f of a call, after %.3f", got, least)
	}
}

// TestOneWayPlane: one host receives nothing on plane 1, while all others receive from it. All ranks name plane 1.
func TestOneWayPlane(t *testing.T) {
	t.Parallel()
	hosts, ethernet := shimtest.NewHosts(t, 2, 2)
	plane := ethernet.Lossy(t, 1)
	ranks := lossyRanks(t, hosts, 2, "LIGHTPATH_HEARTBEAT=0")
	tellFiles(t, ranks, "reduce")
	done(t, ranks, "reduce")
	lose(t, plane[1:], 1) // what host 1 sends
	tellFiles(t, ranks, "limited 2s")
	for r, w := range ranks {
		if line := <-w.lines; !strings.Contains(line, "timed out") || !strings.Contains(line, "plane 1") {
			t.Errorf("rank %d says %q", r, line)
		}
	}
}
