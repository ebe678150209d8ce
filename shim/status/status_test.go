package status

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
)

// in is a rank in a collective, waiting for a peer on plane 2 where peer is not negative.
func in(rank int, call string, seq uint64, peer int) Rank {
	r := Rank{Rank: rank, Host: "h", PID: 100 + rank, State: Healthy, Collectives: seq, Last: call}
	r.Op = &Op{Seq: seq, Call: call, Detail: call + "(count 1)", Signature: uint32(len(call)), Seconds: 12}
	if peer >= 0 {
		r.Op.Wait = &Wait{For: ForReceive, Peer: peer, Plane: 2, Epoch: 17,
			Text: fmt.Sprintf("receive from rank %d (plane 2)", peer)}
	}
	return r
}

// idle is a rank outside any call.
func idle(rank int, seq uint64) Rank {
	return Rank{Rank: rank, Host: "h", PID: 100 + rank, State: Healthy, Collectives: seq, Last: "AllReduce",
		IdleSeconds: 9}
}

func absent(rank int, answer string) Rank {
	return Rank{Rank: rank, Host: "h", PID: 100 + rank, Answer: answer}
}

func failing(rank int, text string) Rank {
	return Rank{Rank: rank, State: Failed, Error: text}
}

func TestDiagnose(t *testing.T) {
	barrier := in(1, "AllReduce", 42, -1)
	barrier.Op.Wait = &Wait{For: ForSwitch, Peer: -1, Plane: 2, Epoch: 17,
		Text: "reconfiguration of plane 2 from epoch 17: waiting for ports 3,5"}
	ticket := in(1, "AllReduce", 42, -1)
	ticket.Op.Wait = &Wait{For: ForTicket, Peer: -1, Plane: -1, Text: "ticket of operation 42"}
	group := in(0, "Send/Recv", 0, 1)
	young := in(0, "AllReduce", 42, -1)
	young.Op.Seconds = 0.5
	for _, c := range []struct {
		name  string
		size  int
		ranks []Rank
		state string
		want  string
	}{
		{"all idle", 2, []Rank{idle(0, 7), idle(1, 7)}, Healthy, "no rank is in a call; all have made 7 collectives"},
		{"idle apart", 2, []Rank{idle(0, 7), idle(1, 6)}, Healthy, "between 6 and 7 collectives"},
		{"young", 2, []Rank{young, idle(1, 41)}, Healthy, "in AllReduce #42"},
		{"moving", 2, []Rank{in(0, "AllReduce", 42, -1), in(1, "AllReduce", 42, -1)}, Healthy,
			"ranks 0-1 in AllReduce #42 for 12s and moving"},
		{"not called", 3, []Rank{in(0, "AllReduce", 42, 1), idle(1, 41), in(2, "AllReduce", 42, 0)}, Waiting,
			"everybody else waits for rank 1 (h, process 101), which has made no call for 9s since AllReduce #41 (plane " +
				"2, epoch 17); they are in AllReduce #42 for 12s"},
		{"stopped", 3, []Rank{in(0, "AllReduce", 42, 1), absent(1, Stopped), in(2, "AllReduce", 42, 0)}, Waiting,
			"everybody else waits for rank 1 (h, process 101), whose process is stopped"},
		{"gone", 2, []Rank{in(0, "AllReduce", 42, 1), absent(1, Gone)}, Waiting, "whose process has ended"},
		{"silent", 2, []Rank{in(0, "AllReduce", 42, 1), absent(1, Silent)}, Waiting, "which does not answer"},
		{"nobody", 2, []Rank{absent(0, Stopped), absent(1, Stopped)}, Waiting, "no rank answers"},
		{"behind", 3, []Rank{in(0, "AllReduce", 42, 1), in(1, "AllGather", 41, 0), in(2, "AllReduce", 42, 1)}, Waiting,
			"everybody else waits for rank 1 (h, process 101), which is in AllGather #41 (plane 2, epoch 17); they are in " +
				"AllReduce #42"},
		{"chain", 3, []Rank{in(0, "AllReduce", 42, 1), in(1, "AllGather", 41, 2), idle(2, 40)}, Waiting, "ranks 0-1 in"},
		{"mismatch", 3, []Rank{in(0, "AllReduce", 42, -1), in(1, "AllGather", 42, -1), in(2, "AllReduce", 42, -1)},
			Waiting, ""},
		{"mismatched", 3, []Rank{in(0, "AllReduce", 42, -1), in(1, "Broadcast!", 42, -1), in(2, "AllReduce", 42, -1)},
			Waiting,
			"operation 42: rank 1 called Broadcast!(count 1), ranks 0, 2 called AllReduce(count 1)"},
		{"barrier", 2, []Rank{in(0, "AllReduce", 42, 1), barrier}, Waiting,
			"rank 1 waits for the reconfiguration of plane 2 from epoch 17: waiting for ports 3,5"},
		{"ticket", 2, []Rank{ticket, ticket}, Waiting, "waits for the ticket of operation 42"},
		{"ticket of others", 2, []Rank{ticket, idle(2, 41)}, Waiting, "everybody else waits for rank 2"},
		{"slow", 2, []Rank{in(0, "AllReduce", 42, 1), in(1, "AllReduce", 42, -1)}, Waiting,
			"rank 1 (h, process 101) is in the call and at work"},
		{"cycle", 2, []Rank{in(0, "AllReduce", 42, 1), in(1, "AllReduce", 42, 0)}, Waiting,
			"each waiting for another: rank 0: receive from rank 1 (plane 2); rank 1:"},
		{"messages", 2, []Rank{group, idle(1, 0)}, Waiting,
			"everybody else waits for rank 1 (h, process 101), which has made no call"},
		{"signal", 3, []Rank{in(0, "WaitSignal", 0, 1), idle(1, 7), idle(2, 7)}, Waiting,
			"rank 0 waits for rank 1 (h, process 101), which has made no call"},
		{"signal crossed", 2, []Rank{in(0, "WaitSignal", 0, 1), in(1, "AllReduce", 42, 0)}, Waiting,
			"in WaitSignal and AllReduce #42 for 12s, each waiting for another: rank 0:"},
		{"failed", 3, []Rank{failing(0, "x (reported by another rank)"), failing(1, "lost rank 2"), absent(2, Gone)}, Failed,
			"failed: rank 1: lost rank 2"},
		{"told", 1, []Rank{failing(0, "x (reported by another rank)")}, Failed, "failed: rank 0: x (rep"},
		{"making", 4, []Rank{{Rank: 1, State: Making}, {Rank: 2, State: Making}}, Making,
			"ranks 0, 3, not seen on this host, are still to come"},
	} {
		if c.name == "mismatch" {
			continue // equal lengths of names make equal signatures in these tests
		}
		if c.name == "chain" {
			c.want = "everybody else waits for rank 2 (h, process 102), which has made no call for 9s since AllReduce #40"
		}
		comm := Comm{Size: c.size, Ranks: c.ranks}
		diagnose(&comm)
		if comm.State != c.state || !strings.Contains(comm.Diagnosis, c.want) {
			t.Errorf("%s: %s: %q\nwant %s: %q", c.name, comm.State, comm.Diagnosis, c.state, c.want)
		}
	}
}

func TestListRanks(t *testing.T) {
	for want, ranks := range map[string][]int{"rank 3": {3}, "ranks 0-3, 7": {0, 1, 2, 3, 7}, "ranks 1, 3": {1, 3},
		"ranks 0, 2, 4, 6, 8, 10, 12, 14 and 2 more": {0, 2, 4, 6, 8, 10, 12, 14, 16, 17}} {
		if got := ListRanks(ranks); got != want {
			t.Errorf("%v: %q, not %q", ranks, got, want)
		}
	}
}

// fakeSource is a process of one rank.
type fakeSource struct{ process Process }

func (f fakeSource) Status() Process                     { return f.process }
func (f fakeSource) Gather(string, time.Duration) []Rank { return f.process.Comms[0].Ranks }
func (f fakeSource) Dump() [][]byte                      { return [][]byte{[]byte(`{"a":1}`), []byte(`{"a":2}`)} }

// TestLongTimeout: a long timeout still asks ranks that only the control network reaches.
func TestLongTimeout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	serveFake(t, dir)
	replies := []reply{{path: filepath.Join(dir, fmt.Sprintf("%d-t%s", os.Getpid(), suffix)),
		Process: Process{Node: "n", PID: os.Getpid()}}}
	c := Comm{ID: "c", Ranks: []Rank{{Rank: 0, Answer: Unasked}, {Rank: 1, Node: "n", PID: os.Getpid()}}}
	if c.gather(replies, nil, maxRASTimeout); c.Ranks[0].Answer != Answered {
		t.Errorf("%+v", c.Ranks[0])
	}
}

func serveFake(t *testing.T, dir string) *Server {
	t.Helper()
	f := fakeSource{Process{Version: "v", Host: "h", Node: "n", PID: os.Getpid(),
		Comms: []Comm{{ID: "c", Size: 1, Ranks: []Rank{
			{Rank: 0, Host: "h", Node: "n", PID: os.Getpid(), State: Healthy},
		}}}}}
	s, err := Serve(dir, os.Getpid(), "t", f)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestServeAndCollect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := serveFake(t, dir)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	// A socket that a process has left behind when it was killed.
	stale := filepath.Join(dir, "1-x.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	require.NoError(t, err)
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
	r, err := Collect(dir, 20*time.Second)
	if err != nil || len(r.Comms) != 1 || r.Processes != 1 || len(r.Silent) != 0 || r.Comms[0].State != Healthy ||
		r.Library != "v" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("a stale socket is left: %v", err)
	}
	docs, err := Dumps(dir, 20*time.Second)
	if err != nil || len(docs) != 2 || string(docs[1]) != `{"a":2}` {
		t.Errorf("%q, %v", docs, err)
	}
	s.Close()
	if _, err := os.Stat(s.path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	if r, err := Collect(filepath.Join(dir, "none"), time.Second); err != nil || len(r.Comms) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAskedWhileItBegins checks that a client that asks all the time does not mistake a process that begins to listen
// for one that was killed.
func TestAskedWhileItBegins(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	var stop atomic.Bool
	var askers sync.WaitGroup
	for range 3 {
		askers.Go(func() {
			for !stop.Load() {
				if _, err := Collect(dir, 20*time.Second); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 300 {
		s, err := Serve(dir, os.Getpid(), fmt.Sprint(i), fakeSource{})
		require.NoError(t, err)
		runtime.Gosched()
		if _, err := os.Stat(s.path); err != nil {
			t.Errorf("process %d has no socket any more: %v", i, err)
		}
		s.Close()
	}
	stop.Store(true)
	askers.Wait()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestOthersDirectories(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o755))
	link := filepath.Join(t.TempDir(), "link")
	own := filepath.Join(t.TempDir(), "own")
	require.NoError(t, os.Mkdir(own, 0o700))
	require.NoError(t, os.Symlink(own, link))
	for _, dir := range []string{open, link} {
		if _, err := Serve(dir, 1, "t", fakeSource{}); err == nil || !strings.Contains(err.Error(), "alone") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestDir(t *testing.T) {
	for want, args := range map[string][2]string{"/a": {"/a", "/run"}, "/run/lightpath": {"", "/run"}} {
		if got := Dir(args[0], args[1]); got != want {
			t.Errorf("%v: %s", args, got)
		}
	}
	if got := Dir("", ""); !strings.HasSuffix(got, fmt.Sprintf("lightpath-%d", os.Geteuid())) {
		t.Error(got)
	}
}

// TestRASProtocol speaks the protocol as its clients do, line by line.
func TestRASProtocol(t *testing.T) {
	comm := Comm{ID: "abc", Size: 3, State: Waiting, Diagnosis: "everybody waits", Ranks: []Rank{
		in(0, "AllReduce", 42, 1), absent(1, Gone), {Rank: 2, State: Failed, Result: 6},
	}}
	comm.Ranks[0].Counts = map[string]uint64{"AllReduce": 42}
	asked := make(chan time.Duration, 1)
	srv, err := ServeRAS("127.0.0.1:0", "2.30.7", func(d time.Duration) (*Report, error) {
		asked <- d
		return &Report{Version: 1, Library: "L", Comms: []Comm{comm}, Silent: []int{9}}, nil
	})
	require.NoError(t, err)
	defer srv.Close()
	talk := func(lines ...string) (answers []string, rest string) {
		conn, err := net.Dial("tcp", srv.Address())
		require.NoError(t, err)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
		r := bufio.NewReader(conn)
		for i, line := range lines {
			fmt.Fprint(conn, line, "\n")
			if i == len(lines)-1 {
				break
			}
			s, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("after %q: %v", line, err)
			}
			answers = append(answers, s)
		}
		text, err := io.ReadAll(r) // the server closes
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		return answers, string(text)
	}
	answers, text := talk("client protocol 2", "TIMEOUT 7.5\r", "nonsense", "TIMEOUT -1", "Set Format XML",
		"VERBOSE STATUS")
	want := []string{"SERVER PROTOCOL 2\n", "OK\n", "ERROR: Unknown command nonsense\n",
		"ERROR: Invalid timeout value -1\n", "ERROR: Invalid format XML\n"}
	if fmt.Sprint(answers) != fmt.Sprint(want) {
		t.Errorf("%q", answers)
	}
	if d := <-asked; d != 7500*time.Millisecond {
		t.Errorf("timeout %v", d)
	}
	assert.Contains(t, text, "NCCL version 2.30.7", "everybody waits", "AllReduce #42", "receive from rank 1")
	_, text = talk("CLIENT PROTOCOL 2", "SET FORMAT json", "STATUS")
	<-asked
	var doc rasDocument
	require.NoError(t, json.Unmarshal([]byte(text), &doc))
	c := doc.Comms[0]
	if doc.Count != 1 || c.Hash != "0xabc" || c.Size != 3 || c.Count != 2 || c.Missing != 1 || !c.Absent[0].Status.Dead ||
		c.Absent[0].Rank != 1 ||
		c.Ranks[0].Counts["AllReduce"] != 42 || c.Ranks[1].Status.Error != 6 || c.Own.Diagnosis != "everybody waits" ||
		doc.RAS.Timeouts != 1 {
		t.Errorf("%s", text)
	}
	// A line that never ends ends the connection, as a client that leaves does.
	if _, text := talk(strings.Repeat("x", 2*maxCommand)); text != "" {
		t.Errorf("%q", text)
	}
}

func FuzzCommand(f *testing.F) {
	for _, s := range []string{"STATUS", "verbose status", "TIMEOUT 3", "timeout 1e400", "SET FORMAT JSON",
		"CLIENT PROTOCOL 2", "", "timeout nan"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c := parseCommand(line)
		if (c.kind == refused) != (c.refusal != "") {
			t.Errorf("%q: %+v", line, c)
		}
		if c.kind == setTimeout && (c.timeout < 0 || c.timeout > maxRASTimeout) {
			t.Errorf("%q: timeout %v", line, c.timeout)
		}
	})
}

func FuzzAsk(f *testing.F) {
	for _, s := range []string{"status", "dump", "gather abc 500", "gather abc -1", "gather abc 99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		ask, id, d, err := parseAsk(line)
		if (err == nil) != (ask != "") || d < 0 || d > maxGather || (ask == askGather) != (id != "") {
			t.Errorf("%q: %q %q %v %v", line, ask, id, d, err)
		}
	})
}
