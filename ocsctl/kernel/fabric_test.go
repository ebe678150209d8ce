package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// Up builds once, says so, and refuses another fabric of the name; Down removes it all, and is
// content where there is nothing.
func TestUpDown(t *testing.T) {
	t.Parallel()
	f := fabricFile(t, 3, 2, "1Gbps", true)
	s := up(t, f)
	b := openBoard(t, s)
	require.NoError(t, b.Install(1, circuit.Shift(3, 1)))
	again, fresh, err := Up(f, Options{})
	if err != nil || fresh || !reflect.DeepEqual(again, s) {
		t.Errorf("again: %v %v, state %+v, want %+v", fresh, err, again, s)
	}
	if m, err := b.Map(1); err != nil || !m.Equal(circuit.Shift(3, 1)) {
		t.Errorf("up touched the circuits: %v %v", m, err)
	}
	other := fabricFile(t, 4, 2, "1Gbps", true)
	if _, _, err := Up(other, Options{}); !errors.Is(err, ErrChanged) {
		t.Errorf("another file of the name: %v", err)
	}
	if _, _, err := Up(f, Options{MTU: 1500}); !errors.Is(err, ErrChanged) {
		t.Errorf("another MTU: %v", err)
	}
	r, err := Inspect(s)
	if err != nil || len(r.Problems) > 0 || len(r.Planes) != 2 || len(r.Planes[1].Ports) != 3 ||
		r.Planes[1].Ports[2].To != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Open(s, 0); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second writer: %v", err)
	}
	if _, err := Down(f.Name, false); !errors.Is(err, ErrBusy) {
		t.Errorf("down under a writer: %v", err)
	}
	if _, err := Down(f.Name, true); err != nil {
		t.Errorf("down by force: %v", err)
	}
	if _, _, err := Up(f, Options{}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "end it first") {
		t.Errorf("up while a process writes the circuits of before: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, fresh, err := Up(f, Options{}); !fresh || err != nil {
		t.Errorf("up after that: fresh %v, %v", fresh, err)
	}
	if err := b.Install(0, circuit.AllDark(3)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed board writes: %v", err)
	}
	if _, err := b.Map(0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed board reads: %v", err)
	}
	if _, err := b.Counters(0, 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed board counts: %v", err)
	}
	for _, want := range []bool{true, false} {
		if found, err := Down(f.Name, false); err != nil || found != want {
			t.Errorf("down: %v %v, want %v", found, err, want)
		}
	}
	nothing(t, s.Name)
	if _, err := Load(f.Name); !errors.Is(err, ErrNotUp) {
		t.Errorf("load: %v", err)
	}
	if _, err := Attach(s, 0); err == nil {
		t.Error("a rank attaches to what is not there")
	}
}

// Inspect names what is missing, and what has been lost.
func TestInspect(t *testing.T) {
	t.Parallel()
	f := fabricFile(t, 3, 2, "1Gbps", false)
	s := up(t, f)
	all := hosts(t, s)
	all[0].send(1, all[1], 3, frame)
	all[0].drained(1)
	b := openBoard(t, s)
	require.NoError(t, b.Install(0, circuit.Shift(3, 1)))
	require.NoError(t, unix.SetsockoptInt(all[1].Planes[0].FD, unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
	all[0].send(0, all[1], 100, 8000) // more than fits
	require.NoError(t, removeNamespace(s.Namespaces[2]))
	require.NoError(t, os.Remove(s.pin(egressPin(1, 1))))
	wait(t, func() bool { return all[1].Planes[0].Counters.Stats().Delivered == 100 }, "%+v", all[1].Planes[0].Counters)
	r, err := Inspect(s)
	require.NoError(t, err)
	found := strings.Join(r.Problems, "\n")
	for _, want := range []string{
		"rank 2: namespace " + s.Namespaces[2], "plane plane1: rank 1: program egress-p1-r1",
		"plane plane1: rank 0: 3 frames lost on a dark circuit",
		"frames lost for want of room in a socket",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("%q is not in\n%s", want, found)
		}
	}
	if n := len(r.Problems); n != 4 {
		t.Errorf("%d problems:\n%s", n, found)
	}
	if _, _, err := Up(f, Options{}); !errors.Is(err, ErrNotUp) {
		t.Errorf("up over what is damaged: %v", err)
	}
}

// Two fabrics on one host do not know of each other.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	f := fabricFile(t, 2, 1, "1Gbps", false)
	g := *f
	g.Name += "-r0" // the worst name there is: it looks like a rank of the other's
	s, o := up(t, f), up(t, &g)
	a, b := openBoard(t, s), openBoard(t, o)
	for _, b := range []*Board{a, b} {
		require.NoError(t, b.Install(0, circuit.Xor(2, 1)))
	}
	left, right := hosts(t, s), hosts(t, o)
	left[0].send(0, left[1], 5, frame)
	left[1].expect(0, 0, 5)
	right[1].send(0, right[0], 6, frame)
	right[0].expect(0, 1, 6)
	if got := right[1].Planes[0].Counters.Stats().Delivered; got != 0 {
		t.Errorf("%d frames of the other fabric", got)
	}
	require.NoError(t, a.Close())
	if _, err := Down(f.Name, false); err != nil {
		t.Fatal(err)
	}
	nothing(t, s.Name)
	right[1].send(0, right[0], 7, frame)
	right[0].expect(0, 1, 7)
}

// These environment variables make the test's program a process that builds the fabric of a file and is
// killed: by TestKilled while it builds, by TestTemporary afterwards.
const (
	builder = "LIGHTPATH_TEST_BUILD_FABRIC"
	owned   = "LIGHTPATH_TEST_TEMPORARY_FABRIC"
)

func TestMain(m *testing.M) {
	file := os.Getenv(builder) + os.Getenv(owned)
	if file == "" {
		os.Exit(m.Run())
	}
	f, err := fabric.Load(file)
	switch {
	case err != nil:
	case os.Getenv(owned) != "":
		if _, _, err = Temporary(f, Options{}); err == nil {
			fmt.Println("up")
			_, err = io.Copy(io.Discard, os.Stdin) // until the test or its end ends this
		}
	default:
		_, _, err = Up(f, Options{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A process that is killed while it builds a fabric leaves nothing that Down, or the next Up, does
// not clear away.
func TestKilled(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := fabricFile(t, 4, 2, "1Gbps", true)
	name := Name(f)
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	require.NoError(t, os.WriteFile(file, f.Encode(), 0o644))
	t.Cleanup(func() { _, _ = Down(name, true) })
	rng := rand.New(rand.NewPCG(3, 4))
	half := 0
	for i := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), builder+"="+file)
		require.NoError(t, cmd.Start())
		// Killed at some time after its first trace is there.
		wait(t, func() bool { return exists(name) }, "no trace of the fabric")
		time.Sleep(time.Duration(rng.IntN(250)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it has been killed
		if _, err := Load(name); errors.Is(err, ErrNotUp) {
			half++
		}
		if i%2 == 0 {
			if found, err := Down(name, false); err != nil || !found {
				t.Fatalf("down: %v %v", found, err)
			}
			nothing(t, name)
			continue
		}
		s, _, err := Up(f, Options{})
		require.NoError(t, err)
		if r, err := Inspect(s); err != nil || len(r.Problems) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := Down(name, false); err != nil {
			t.Fatal(err)
		}
		nothing(t, name)
	}
	t.Logf("%d of 4 half made", half)
}

// What cannot be built is refused before anything is touched, with the field.
func TestPlanRefuses(t *testing.T) {
	good := func() *fabric.Fabric { return fabricFile(t, 2, 2, "1Gbps", false) }
	for _, c := range []struct {
		name, want string
		o          Options
		change     func(*fabric.Fabric)
	}{
		{name: "no interface", want: "plane plane1: has no interface", change: func(f *fabric.Fabric) {
			f.Planes[1].Interface = ""
		}},
		{name: "loopback", want: "plane plane0: interface", change: func(f *fabric.Fabric) { f.Planes[0].Interface = "lo" }},
		{name: "path", want: "plane plane0: interface", change: func(f *fabric.Fabric) { f.Planes[0].Interface = "../x" }},
		{name: "long", want: "plane plane0: interface", change: func(f *fabric.Fabric) {
			f.Planes[0].Interface = "sixteen-letters-"
		}},
		{name: "twice", want: "is that of plane plane0", change: func(f *fabric.Fabric) { f.Planes[1].Interface = "p0" }},
		{name: "packets", want: "has no switch", change: func(f *fabric.Fabric) { f.Planes[0].OCS = "" }},
		{name: "hosts", want: "name one (--host)", change: func(f *fabric.Fabric) {
			f.Hosts = []fabric.Host{{Name: "a", Ranks: 1}, {Name: "b", Ranks: 1}}
		}},
		{name: "slow", want: "bandwidth", change: func(f *fabric.Fabric) { f.Planes[0].Bandwidth = 10 }},
		{name: "ranks", want: "ranks: 5000", change: func(f *fabric.Fabric) { f.Ranks = 5000 }},
		{name: "small MTU", want: "MTU 100", o: Options{MTU: 100}, change: func(*fabric.Fabric) {}},
		{name: "large MTU", want: "MTU 70000", o: Options{MTU: 70000}, change: func(*fabric.Fabric) {}},
	} {
		f := good()
		c.change(f)
		if _, err := plan(f, c.o); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := plan(good(), Options{}); err != nil {
		t.Error(err)
	}
}

// Names are short, plain and stay what they are; different names stay different.
func TestCanonical(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{"", "two-planes", "A_b-9", "a/b", "a b", "a_b", "../../etc", strings.Repeat("x", 24),
		strings.Repeat("x", 25), strings.Repeat("x", 26), "Gruenkohl\u00df"} {
		c := canonical(name)
		if len(c) > maxName || strings.ContainsAny(c, "/. \n") || canonical(c) != c {
			t.Errorf("%q became %q", name, c)
		}
		if other, twice := seen[c]; twice {
			t.Errorf("%q and %q are both %q", name, other, c)
		}
		seen[c] = name
		for _, end := range []string{"ocs", "r0", "r4095"} {
			if of, ok := fabricOf("lp-" + c + "-" + end); !ok || of != c {
				t.Errorf("lp-%s-%s is of %q, %v", c, end, of, ok)
			}
		}
	}
	for _, foreign := range []string{"lp-ocs", "lp--r0", "lp-x-r", "lp-x-r1x", "lp-x-r-1", "xlp-x-r0", "cni-1234"} {
		if of, ok := fabricOf(foreign); ok {
			t.Errorf("%s is said to be of %q", foreign, of)
		}
	}
}

// FuzzState: whatever is in a state file, reading it ends in a state or one line.
func FuzzState(f *testing.F) {
	good, err := plan(fabricFile(f, 2, 1, "1Gbps", false), Options{})
	require.NoError(f, err)
	data, err := json.Marshal(good)
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"version":1,"ranks":-1}`))
	f.Add([]byte(`{"version":1,"ranks":2,"planes":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		for j := range s.Planes {
			if len(s.Planes[j].Addrs) != s.Ranks || len(s.Namespaces) != s.Ranks || s.slot(j, s.Ranks-1) >= maxRanks*maxPlanes {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestParseOverruns(t *testing.T) {
	for _, c := range []struct {
		table string
		want  uint64
		ok    bool
	}{
		{"Ip: Forwarding\nIp: 1\nUdp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 5 17 0\nUdpLite: " +
			"RcvbufErrors\nUdpLite: 3\n", 17, true},
		{"Udp: InDatagrams RcvbufErrors\nUdp: 5\n", 0, false},
		{"Udp: RcvbufErrors\nUdp: many\n", 0, false},
		{"", 0, false},
	} {
		if got, err := parseOverruns(c.table); got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %d, %v", c.table, got, err)
		}
	}
}

// A writer that was killed leaves a lock without an owner: Down removes it, forced or not. A writer that lives keeps
// its lock.
func TestDownAfterWriters(t *testing.T) {
	needRoot(t)
	for _, force := range []bool{false, true} {
		name := fmt.Sprintf("tJ%d", os.Getpid())
		dead, alive := filepath.Join(runDir, name+"."+writeLock(0)), filepath.Join(runDir, name+"."+writeLock(1))
		require.NoError(t, os.MkdirAll(runDir, 0o755))
		require.NoError(t, os.WriteFile(dead, []byte("1\n"), 0o644))
		held, err := lock(name, writeLock(1))
		require.NoError(t, err)
		if _, err := Down(name, force); force != (err == nil) || !force && !errors.Is(err, ErrBusy) {
			t.Errorf("force %v: %v", force, err)
		}
		if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("force %v: the lock of a dead writer: %v", force, err)
		}
		if _, err := os.Stat(alive); err != nil {
			t.Errorf("force %v: the lock of a writer: %v", force, err)
		}
		unlock(held)
	}
}
