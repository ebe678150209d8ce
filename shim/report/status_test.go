package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/flight"
	"lightpath/shim/recorder"
	"lightpath/shim/report"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
	"lightpath/shim/status"
)

// TestStatusNamesStoppedRank checks that the status names a stopped rank, with its process.
func TestStatusNamesStoppedRank(t *testing.T) {
	for _, victim := range []int{0, 2} {
		dir := shimtest.UseStatusDir(t)
		ranks := shimtest.StartRanks(t, 3)
		require.NoError(t, ranks[victim].Process.Signal(unix.SIGSTOP))
		c := shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool {
			return c.State == status.Waiting && strings.Contains(c.Diagnosis, "everybody else waits for rank")
		})
		for r := range c.Ranks {
			if want := r == victim; (c.Ranks[r].Answer == status.Stopped) != want || c.Ranks[r].PID != ranks[r].Process.Pid {
				t.Errorf("victim %d: rank %+v", victim, c.Ranks[r])
			}
		}
		if !strings.Contains(c.Diagnosis, "whose process is stopped") || !strings.Contains(c.Diagnosis, "in AllReduce #") {
			t.Errorf("victim %d: %s", victim, c.Diagnosis)
		}
		for _, p := range ranks {
			_ = p.Process.Kill()
			<-p.LastLine
			_ = p.Wait() // its status is the signal
		}
		// Its sockets and files are removed.
		if r, err := status.Collect(dir, 20*time.Second); err != nil || len(r.Comms) != 0 {
			t.Errorf("afterwards: %+v, %v", r, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// TestStatusNamesRankElsewhere: a rank that has not made the call, and one in another, are named
// before the communicator fails.
func TestStatusNamesRankElsewhere(t *testing.T) {
	shimtest.OnTransports(t, []string{"shm", "tcp"}, func(t *testing.T) {
		dir := shimtest.UseStatusDir(t)
		w := shimtest.NewWorld(t, 3)
		w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) })
		done := make(chan []error, 1)
		proceed := make(chan struct{})
		go func() {
			done <- w.Each(func(c *shim.Comm) error {
				if c.Rank == 1 {
					<-proceed
				}
				return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))})
			})
		}()
		c := shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool { return c.State == status.Waiting })
		assert.Contains(t, c.Diagnosis, "everybody else waits for rank 1 (", "which has made no call for ",
			" since AllReduce #1", "in AllReduce #2")
		close(proceed)
		shimtest.NoErrors(t, <-done)
		c = shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool { return c.State == status.Healthy })
		if n := c.Ranks[1].Counts["AllReduce"]; n != 2 || c.Ranks[1].Collectives != 2 {
			t.Errorf("counted %d", n)
		}
	})
}

// TestStatusOfWhatIsMade checks that a communicator names its missing ranks while it is being made.
func TestStatusOfWhatIsMade(t *testing.T) {
	dir := shimtest.UseStatusDir(t)
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	made := make(chan *shim.Comm, 2)
	join := func(r int) {
		comms, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: r}})
		if err != nil {
			t.Error(err)
			made <- nil
			return
		}
		made <- comms[0]
	}
	go join(0)
	c := shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool { return c.State == status.Making })
	if !strings.Contains(c.Diagnosis, "rank 1, not seen on this host") || strings.Contains(c.ID, string(id[:4])) {
		t.Errorf("%s: %s", c.ID, c.Diagnosis)
	}
	go join(1)
	w := shimtest.WorldOf(t, nil)
	for range 2 {
		if c := <-made; c != nil {
			w.Comms = append(w.Comms, c)
		}
	}
	t.Cleanup(w.Destroy)
	shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool { return c.State == status.Healthy && len(c.Ranks) == 2 })
}

// TestProbe checks that every rank answers any other rank over the control network.
func TestProbe(t *testing.T) {
	shimtest.UseStatusDir(t)
	w := shimtest.NewWorld(t, 4)
	w.Must(func(c *shim.Comm) error {
		for range 3 { // answers of one question must not be taken for those of the next
			ranks := report.AskAll(c, 60*time.Second)
			if len(ranks) != 4 {
				t.Errorf("rank %d got %d answers", c.Rank, len(ranks))
			}
			for i, r := range ranks {
				if r.Rank != i || r.Answer != status.Answered || r.State != status.Healthy {
					t.Errorf("rank %d got %+v", c.Rank, r)
				}
			}
		}
		return nil
	})
}

// TestStatusThroughControl checks that a rank without a socket here, as on another host, answers over the control
// network, and that a rank that does not is silent.
func TestStatusThroughControl(t *testing.T) {
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	dir := shimtest.UseStatusDir(t)
	configs := make([]*settings.Config, 3)
	for r := range configs {
		if r == 1 {
			t.Setenv("LIGHTPATH_STATUS_DIR", "off")
		}
		if configs[r], err = settings.Load(); err != nil {
			t.Fatal(err)
		}
	}
	w := shimtest.WorldOf(t, make([]*shim.Comm, 3))
	shimtest.NoErrors(t, shimtest.Concurrently(t, 3, func(r int) (err error) {
		w.Comms[r], err = shimtest.InitOne(shim.InitArgs{ID: id, Ranks: 3, Rank: r}, configs[r])
		return err
	}))
	t.Cleanup(w.Destroy)
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) })
	c := shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool { return len(c.Ranks) == 3 })
	for r := range c.Ranks {
		if k := &c.Ranks[r]; k.Answer != status.Answered || k.Collectives != 1 {
			t.Errorf("%+v", k)
		}
	}
	for range report.MaxOwed {
		report.Of(w.Comms[0]).Owed.Add(1) // it no longer answers
	}
	report, err := status.Collect(dir, 500*time.Millisecond)
	if err != nil || report.Comms[0].Ranks[1].Answer != status.Silent || report.Comms[0].State != status.Waiting {
		t.Errorf("%+v %v", report, err)
	}
}

// TestFlightOnFailure checks that a communicator that fails leaves a file per rank, and that these show which rank has
// not made which call.
func TestFlightOnFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "flights")
	t.Setenv("LIGHTPATH_FLIGHT_RECORDER_DIR", dir)
	shimtest.UseStatusDir(t)
	w := shimtest.NewWorld(t, 3)
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) })
	w.Each(func(c *shim.Comm) error {
		if c.Rank == 1 {
			for recorder.Of(w.Comms[0]).Snapshot().Op.Seq < 2 || recorder.Of(w.Comms[2]).Snapshot().Op.Seq < 2 {
				time.Sleep(time.Millisecond)
			}
			return c.Abort()
		}
		return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))})
	})
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%v %v", files, err)
	}
	var dumps []*flight.Dump
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
		d, err := flight.Decode(text)
		require.NoError(t, err)
		if !strings.Contains(d.Error, "rank 1 aborted") {
			t.Errorf("rank %d: %q", d.Rank, d.Error)
		}
		dumps = append(dumps, d)
	}
	found := flight.Compare(dumps)
	if len(found) != 1 || found[0].Seq != 2 || len(found[0].Behind) != 1 || found[0].Behind[0] != 1 ||
		len(found[0].Inside) != 2 {
		t.Errorf("%+v", found)
	}
}

// TestFlightOnCircuits: planes, epochs, tickets and moves are in the recorder.
func TestFlightOnCircuits(t *testing.T) {
	shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	shimtest.UseStatusDir(t)
	w := shimtest.NewWorld(t, 4)
	for range 3 {
		w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10000))}) })
	}
	text, err := recorder.Dump(w.Comms[2])
	require.NoError(t, err)
	d, err := flight.Decode(text)
	require.NoError(t, err)
	if path := os.Getenv("LIGHTPATH_TEST_DUMP"); path != "" { // makes shim/flight/testdata
		var out bytes.Buffer
		require.NoError(t, json.Indent(&out, append(text, '\n'), "", "  "))
		require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	}
	if len(d.Operations) != 3 {
		t.Fatalf("%d operations", len(d.Operations))
	}
	for i, o := range d.Operations {
		if o.Seq != uint64(i+1) || o.Planner != "perstep" || len(o.Plan) == 0 || len(o.Planes) != 2 || len(o.Moves) == 0 {
			t.Errorf("%+v", o)
		}
		if o.Arrived <= 0 || o.Asked < o.Arrived || o.Ticketed < o.Asked || o.Ended < o.Ticketed ||
			o.Outcome != flight.Completed {
			t.Errorf("times of %+v", o)
		}
		for _, l := range o.Planes {
			if l.Sent <= 0 || l.Received <= 0 || l.Start < o.Ticketed || l.End < l.Start || l.End > o.Ended {
				t.Errorf("plane %+v of %+v", l, o)
			}
		}
		for k, m := range o.Moves {
			if m.Start < o.Ticketed || m.End != 0 && m.End < m.Start || m.Epoch < o.Planes[m.Plane].Epoch {
				t.Errorf("move %d: %+v of %+v", k, m, o)
			}
		}
	}
}

// TestRAS: a client of NCCL's protocol gets the diagnosis, in text and in JSON.
func TestRAS(t *testing.T) {
	shimtest.UseStatusDir(t)
	t.Setenv("NCCL_RAS_ENABLE", "1")
	t.Setenv("NCCL_RAS_ADDR", "127.0.0.1:0")
	w := shimtest.NewWorld(t, 2)
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) })
	address := report.RASAddress()
	var text, doc bytes.Buffer
	require.NoError(t, status.AskRAS(address, 20*time.Second, true, false, &text))
	if !strings.Contains(text.String(), "no rank is in a call; all have made 1 collectives") {
		t.Errorf("%s", text.String())
	}
	require.NoError(t, status.AskRAS(address, 20*time.Second, false, true, &doc))
	var got struct {
		Communicators []struct {
			Size  int `json:"size"`
			Ranks []struct {
				Counts map[string]int `json:"collective_counts"`
			} `json:"ranks"`
		} `json:"communicators"`
	}
	if err := json.Unmarshal(doc.Bytes(), &got); err != nil || len(got.Communicators) != 1 ||
		got.Communicators[0].Size != 2 ||
		len(got.Communicators[0].Ranks) != 2 || got.Communicators[0].Ranks[1].Counts["AllReduce"] != 1 {
		t.Errorf("%v %s", err, doc.String())
	}
}

// BenchmarkFlight is a small AllReduce of two ranks with and without the recorder.
func BenchmarkFlight(b *testing.B) {
	for _, n := range []string{"256", "0"} {
		b.Run(n, func(b *testing.B) {
			b.Setenv("LIGHTPATH_TRANSPORT", "shm")
			b.Setenv("LIGHTPATH_FLIGHT_RECORDER", n)
			w := shimtest.NewWorld(b, 2)
			b.ResetTimer()
			w.Must(func(c *shim.Comm) error {
				call := []calls.Call{shimtest.AllReduce(c, make([]float32, 2))}
				for range b.N {
					if err := shim.Run(call); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
