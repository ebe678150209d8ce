package etcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/plans/circuit"
)

// TestLostLease: a controller that the network has cut off stops before the next one begins.
func TestLostLease(t *testing.T) {
	t.Parallel()
	server := open(t, t.TempDir())
	r := newRelay(t, server.conf.socket())
	a, b := open(t, "", through("a", r.address), brief), open(t, "", through("b", server.conf.socket()))
	old := lead(t, a)
	require.NoError(t, journaltest.Intend(t, old, intent(0)))
	r.stick(there, back)
	waiting := make(chan error, 1)
	old.Intend(intent(1), func(err error) { waiting <- err })
	l := lead(t, b)
	select {
	case <-old.Done():
	default:
		t.Error("two controllers rule")
	}
	if err := <-waiting; !errors.Is(err, controller.ErrNotLeader) {
		t.Errorf("the intent that was under way: %v", err)
	}
	if l.Token() <= old.Token() {
		t.Errorf("token %d after %d", l.Token(), old.Token())
	}
	r.free()
	if err := journaltest.Intend(t, old, intent(1)); !errors.Is(err, controller.ErrNotLeader) {
		t.Errorf("an intent afterwards: %v", err)
	}
	// The intent that was under way is void, even if it arrived late.
	require.NoError(t, journaltest.Intend(t, l, intent(7)))
	journaltest.Resign(t, l)
	if i := storedState(t, server).Intent; i == nil || i.Epoch != 7 {
		t.Errorf("the journal has intent %+v", i)
	}
}

// TestStaleToken: a controller that believes to rule, because its clock stands still, is refused.
func TestStaleToken(t *testing.T) {
	t.Parallel()
	server := open(t, t.TempDir())
	r := newRelay(t, server.conf.socket())
	a, b := open(t, "", through("a", r.address)), open(t, "", through("b", server.conf.socket()))
	stopClock(a)
	old := lead(t, a)
	r.stick(there, back)
	if _, err := server.etcd.Revoke(t.Context(), old.lease); err != nil { // as if it had expired
		t.Fatal(err)
	}
	l := lead(t, b)
	if old.Err() != nil {
		t.Fatalf("the clock does not stand still: %v", old.Err())
	}
	r.free()
	err := journaltest.Intend(t, old, intent(0))
	if !errors.Is(err, controller.ErrNotLeader) {
		t.Fatalf("a deposed controller's intent: %v", err)
	}
	select {
	case <-old.Done():
	case <-time.After(journaltest.Patience):
		t.Fatal("the refusal did not end the rule")
	}
	if err := journaltest.Intend(t, l, intent(0)); err != nil {
		t.Errorf("the controller in charge: %v", err)
	}
}

// TestSlowCampaign: a controller renews its lease at once if most of it has passed when the rule begins.
func TestSlowCampaign(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), func(c *Config) { c.Lease = 4 * time.Minute })
	asks, clock := atomic.Int64{}, c.clock
	c.clock = func() time.Duration { // the answer to the first question takes 150 s
		if asks.Add(1) == 1 {
			return clock()
		}
		return clock() + 150*time.Second
	}
	l := lead(t, c)
	first := l.until.Load()
	await.Until(t, "the lease is renewed", func() bool { return l.until.Load() > first })
	require.NoError(t, l.Err())
}

// TestLostAnswer: a write whose answer is lost is neither repeated nor given up.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	server := open(t, t.TempDir())
	r := newRelay(t, server.conf.socket())
	a := open(t, "", through("a", r.address), func(c *Config) { c.Lease = 25 * time.Second })
	l := lead(t, a)
	r.stick(back)
	answer := make(chan error, 2)
	l.Intend(intent(3), func(err error) { answer <- err })
	key := a.key(journal.PlaneKey(0))
	await.Until(t, "the write arrives", func() bool {
		resp, err := server.etcd.Get(t.Context(), key)
		return err == nil && len(resp.Kvs) == 1
	})
	r.cut()
	r.free()
	select {
	case err := <-answer:
		require.NoError(t, err)
	case <-time.After(journaltest.Patience):
		t.Fatal("the intent has not been answered")
	}
	resp, err := server.etcd.Get(t.Context(), key)
	if err != nil || resp.Kvs[0].Version != 1 {
		t.Fatalf("%s was written %d times: %v", key, resp.Kvs[0].Version, err)
	}
	require.NoError(t, journaltest.Intend(t, l, intent(4)))
	if len(answer) != 0 {
		t.Fatal("answered twice")
	}
}

// TestSharedDirectory: when the controller that serves the store dies, the next one serves it. It does
// not wait for the dead controller's lease to end.
func TestSharedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, func(c *Config) { c.Name, c.Lease = "a", 2*journaltest.Patience })
	b := open(t, dir, func(c *Config) { c.Name, c.Lease = "b", 2*journaltest.Patience })
	old := lead(t, a)
	require.NoError(t, journaltest.Intend(t, old, intent(5)))
	won := make(chan *leadership, 1)
	go func() {
		if l, err := b.Campaign(context.Background()); err == nil {
			won <- l.(*leadership)
		}
	}()
	await.Until(t, "b knows who rules", func() bool { return b.Leader().Name == "a" && b.Leader().Token == old.Token() })
	_ = a.Close()
	if old.Err() == nil {
		t.Fatal("a closed controller rules")
	}
	select {
	case l := <-won:
		at, err := l.Recovered(journaltest.Ports, journaltest.Planes)
		if err != nil || at[0].Intent == nil || at[0].Intent.Epoch != 5 || l.Token() <= old.Token() {
			t.Fatalf("token %d after %d, %+v, %v", l.Token(), old.Token(), at, err)
		}
	case <-time.After(journaltest.Patience):
		t.Fatal("nobody has taken over")
	}
}

// TestRestart: the store outlives all controllers.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var token uint64
	for round := range uint32(3) {
		c := open(t, dir)
		l := lead(t, c)
		if l.Token() <= token {
			t.Fatalf("round %d: token %d after %d", round, l.Token(), token)
		}
		token = l.Token()
		if round > 0 {
			if s := storedState(t, c); s.Intent == nil || s.Intent.Epoch != round-1 {
				t.Fatalf("round %d: %+v", round, s)
			}
		}
		require.NoError(t, journaltest.Intend(t, l, intent(round)))
		if round%2 == 0 {
			journaltest.Resign(t, l)
		}
		_ = c.Close()
	}
}

// TestForeignWriter checks that a writer which ignores the rule ends it, and that the next rule reads the stored state.
func TestForeignWriter(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	l := lead(t, c)
	require.NoError(t, journaltest.Intend(t, l, intent(0)))
	write(t, c, journal.PlaneKey(0), "by hand")
	err := journaltest.Intend(t, l, intent(1))
	if !errors.Is(err, controller.ErrNotLeader) || !strings.Contains(err.Error(), c.key(journal.PlaneKey(0))) {
		t.Fatal(err)
	}
}

// TestTwoWriters lets two controllers write in any order, one of which does not know that it
// has been deposed: what stands is what the other one wrote.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	server := open(t, t.TempDir())
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 12 {
		prefix := fmt.Sprintf("/%d/", round)
		set := func(c *Config) { c.Prefix = prefix }
		var who [2]*Client
		for i := range who {
			who[i] = open(t, "", through(string(rune('a'+i)), server.conf.socket()), set)
			stopClock(who[i])
		}
		rules := [2]*leadership{lead(t, who[0]), nil}
		last := uint32(0) // epoch of the last intent that was taken
		for epoch := uint32(1); epoch < 12; epoch++ {
			if rules[1] == nil && rnd.IntN(6) == 0 { // the lease of the first runs out
				if _, err := server.etcd.Revoke(t.Context(), rules[0].lease); err != nil {
					t.Fatal(err)
				}
				rules[1] = lead(t, who[1])
			}
			i := 0
			if rules[1] != nil {
				i = rnd.IntN(2)
			}
			err := journaltest.Intend(t, rules[i], intent(epoch))
			if deposed := i == 0 && rules[1] != nil; deposed != (err != nil) || err != nil &&
				!errors.Is(err, controller.ErrNotLeader) {
				t.Fatalf("round %d epoch %d: controller %d, deposed %v: %v", round, epoch, i, deposed, err)
			}
			if err == nil {
				last = epoch
			}
		}
		if s := storedState(t, who[0]); s.Intent.Epoch != last {
			t.Fatalf("round %d: intent %+v stands, not that of epoch %d", round, s.Intent, last)
		}
		for _, c := range who {
			_ = c.Close()
		}
	}
}

// stoppedAddress is set in the process that TestStoppedProcess stops.
const stoppedAddress = "LIGHTPATH_TEST_STOPPED_ADDRESS"

// TestStoppedProcess: a process that is stopped while it rules, and goes on when another one
// does, does not write.
func TestStoppedProcess(t *testing.T) {
	if address := os.Getenv(stoppedAddress); address != "" {
		beStopped(t, address)
		return
	}
	t.Parallel()
	server := open(t, t.TempDir())
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoppedProcess$", "-test.v")
	cmd.Env = append(os.Environ(), stoppedAddress+"="+server.conf.socket())
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	says := func(word string) string {
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), word); ok {
				return rest
			}
		}
		t.Fatalf("the process ended without %q", word)
		return ""
	}
	says("rules")
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	l := lead(t, open(t, "", through("next", server.conf.socket())))
	if _, err := fmt.Fprintln(in, "go"); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	if said := says("answer"); !strings.Contains(said, controller.ErrNotLeader.Error()) {
		t.Errorf("the process that was stopped: %s", said)
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
}

// beStopped rules, and intends something when it is told to.
func beStopped(t *testing.T, address string) {
	c := open(t, "", through("stopped", address), brief)
	l := lead(t, c)
	fmt.Println("rules")
	if _, err := fmt.Scanln(new(string)); err != nil {
		t.Fatal(err)
	}
	// The clock is asked before any message is: the answer does not depend on the network.
	err := journaltest.Intend(t, l, controller.Intent{To: circuit.Shift(journaltest.Ports, 1)})
	fmt.Println("answer", err)
}
