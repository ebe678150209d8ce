package shm

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/mesh"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/require"

	"golang.org/x/sys/unix"
)

// Environment variables of a rank that runs in another process: see TestProcesses.
const (
	envName = "LIGHTPATH_TEST_SEGMENT"
	envRank = "LIGHTPATH_TEST_RANK"
)

const (
	processRanks    = 3
	processPlanes   = 2
	processMessages = 15
)

func TestMain(m *testing.M) {
	if name := os.Getenv(envName); name != "" {
		if err := child(name); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// open returns the endpoints of all ranks of a communicator, in this process.
func open(t testing.TB, o Options) []transport.Endpoint {
	t.Helper()
	o.Rank = 0
	name, first, err := Create(o)
	require.NoError(t, err)
	endpoints := []transport.Endpoint{first}
	for o.Rank = 1; o.Rank < o.Ranks; o.Rank++ {
		e, err := Attach(name, o)
		require.NoError(t, err)
		endpoints = append(endpoints, e)
	}
	if left := segments(t, DefaultDir, name); len(left) != 0 {
		t.Errorf("after all ranks have attached, files are left: %v", left)
	}
	return endpoints
}

func segments(t testing.TB, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	return found
}

func suite() transporttest.Config {
	return transporttest.Config{
		PeerLoss: true,
		Open: func(t testing.TB, ranks, planes int) []transport.Endpoint {
			return open(t, Options{Ranks: ranks, Planes: planes})
		},
	}
}

func TestConformance(t *testing.T) { transporttest.Run(t, suite()) }

// TestProcesses runs random traffic between processes, which run this test binary.
func TestProcesses(t *testing.T) {
	name, e, err := Create(Options{Ranks: processRanks, Planes: processPlanes})
	require.NoError(t, err)
	defer transporttest.Close(t, e)
	var children []*exec.Cmd
	var outputs []*strings.Builder
	for rank := 1; rank < processRanks; rank++ {
		out := &strings.Builder{}
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), envName+"="+name, envRank+"="+strconv.Itoa(rank))
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(t, cmd.Start())
		children, outputs = append(children, cmd), append(outputs, out)
	}
	if err := runRank(e, 0); err != nil {
		t.Errorf("rank 0: %v", err)
	}
	for i, cmd := range children {
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v: %s", i+1, err, outputs[i])
		}
	}
	if left := segments(t, DefaultDir, name); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
}

func runRank(e transport.Endpoint, rank int) error {
	return suite().Rank(e, rank, processRanks, processMessages, func(done bool) bool { return done })
}

func child(name string) error {
	rank, err := strconv.Atoi(os.Getenv(envRank))
	if err != nil {
		return err
	}
	e, err := Attach(name, Options{Ranks: processRanks, Planes: processPlanes, Rank: rank})
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	return runRank(e, rank)
}

func TestAttachRefuses(t *testing.T) {
	dir := t.TempDir()
	o := Options{Ranks: 2, Planes: 1, dir: dir, budget: 1 << 20}
	name, e, err := Create(o)
	require.NoError(t, err)
	defer transporttest.Close(t, e)
	good, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	const other = "lightpath-00000000000000000000000000000000"
	o.Rank = 1
	for _, c := range []struct {
		name string
		file string
		edit func(b []byte) []byte
		mode os.FileMode
		o    Options
	}{
		{name: "path", file: "../" + other},
		{name: "name", file: "lightpath-1234"},
		{name: "empty", edit: func([]byte) []byte { return nil }},
		{name: "zeros", edit: func(b []byte) []byte { clear(b); return b }},
		{name: "magic", edit: func(b []byte) []byte { b[0]++; return b }},
		{name: "version", edit: func(b []byte) []byte { b[atVersion]++; return b }},
		{name: "slots", edit: func(b []byte) []byte { b[atGeometry+8]++; return b }},
		{name: "huge", edit: func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[atGeometry+12:], 1<<31)
			return b
		}},
		{name: "short", edit: func(b []byte) []byte { return b[:len(b)-1] }},
		{name: "long", edit: func(b []byte) []byte { return append(b, 0) }},
		{name: "mode", mode: 0o644},
		{name: "ranks", o: Options{Ranks: 3, Planes: 1, Rank: 1, dir: dir}},
		{name: "planes", o: Options{Ranks: 2, Planes: 2, Rank: 1, dir: dir}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, opts, mode := c.file, c.o, c.mode
			file = cmp.Or(file, other)
			if opts.Ranks == 0 {
				opts = o
			}
			mode = cmp.Or(mode, 0o600)
			b := append([]byte(nil), good...)
			if c.edit != nil {
				b = c.edit(b)
			}
			path := filepath.Join(dir, other)
			require.NoError(t, os.WriteFile(path, b, mode))
			defer os.Remove(path)
			if _, err := Attach(file, opts); !errors.Is(err, ErrNotSegment) {
				t.Errorf("err = %v", err)
			}
		})
	}
	if _, err := Attach(name, Options{Ranks: 2, Planes: 1, Rank: 0, dir: dir}); !errors.Is(err, mesh.ErrTaken) {
		t.Errorf("second rank 0: %v", err)
	}
	if _, err := Attach(name, Options{Ranks: 2, Planes: 1, Rank: 2, dir: dir}); err == nil {
		t.Error("rank 2 of 2 attached")
	}
	last, err := Attach(name, o)
	if err != nil {
		t.Fatalf("Attach as rank 1: %v", err)
	}
	defer transporttest.Close(t, last)
}

// TestFullFileSystem checks that Create makes a smaller segment, and returns ErrNoSpace if none fits.
func TestFullFileSystem(t *testing.T) {
	real := allocate
	defer func() { allocate = real }()
	room := int64(1 << 20)
	allocate = func(f *os.File, size int64) error {
		if size > room {
			return unix.ENOSPC
		}
		return real(f, size)
	}
	dir := t.TempDir()
	name, e, err := Create(Options{Ranks: 4, Planes: 2, dir: dir})
	require.NoError(t, err)
	if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() > room {
		t.Errorf("size %v, %v", st.Size(), err)
	}
	require.NoError(t, e.Close())
	room = 4096
	if _, _, err := Create(Options{Ranks: 4, Planes: 2, dir: dir}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("err = %v", err)
	}
	if left := segments(t, dir, "*"); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
}

// TestShared checks that all ranks see one shared memory, and that it is empty if only the rings fit.
func TestShared(t *testing.T) {
	const size = 1 << 16
	e := open(t, Options{Ranks: 3, Planes: 1, Shared: size})
	defer func() {
		for _, x := range e {
			transporttest.Close(t, x)
		}
	}()
	for r := range e {
		mem := e[r].(transport.Sharer).Shared()
		if len(mem) != size || uintptr(unsafe.Pointer(&mem[0]))%64 != 0 {
			t.Fatalf("rank %d has %d bytes at %p", r, len(mem), mem)
		}
		for i := range r {
			if mem[i*(size/4)] != byte(i+1) {
				t.Errorf("rank %d does not see what rank %d wrote", r, i)
			}
		}
		mem[r*(size/4)] = byte(r + 1)
	}
	if e[0].(transport.Sharer).Closed(1) {
		t.Error("Closed(1) before rank 1 closes")
	}
	transporttest.Close(t, e[1])
	if !e[0].(transport.Sharer).Closed(1) {
		t.Error("not Closed(1) after rank 1 closed")
	}

	whole := allocate
	defer func() { allocate = whole }()
	allocate = func(f *os.File, n int64) error {
		if n > size {
			return unix.ENOSPC
		}
		return whole(f, n)
	}
	small := open(t, Options{Ranks: 2, Planes: 1, Shared: size})
	defer transporttest.Close(t, small[0], small[1])
	for r := range small {
		if n := len(small[r].(transport.Sharer).Shared()); n != 0 {
			t.Errorf("rank %d has %d shared bytes on a full file system", r, n)
		}
	}
}

func TestBudget(t *testing.T) {
	for _, ranks := range []int{1, 2, 8, 64} {
		for _, planes := range []int{1, 2, 4} {
			g := mesh.Fit(ranks, planes, ranks*mesh.BudgetPerRank)
			if err := g.Check(); err != nil {
				t.Error(err)
			}
			if size := segmentSize(g, 0); size > ranks*mesh.BudgetPerRank+headerSize {
				t.Errorf("%d ranks, %d planes: %d bytes", ranks, planes, size)
			}
		}
	}
}

// TestRemoveAbandoned checks that only abandoned files are removed: no young files, no locked ones, no other names.
func TestRemoveAbandoned(t *testing.T) {
	dir := t.TempDir()
	name, e, err := Create(Options{Ranks: 2, Planes: 1, dir: dir, budget: 1 << 16})
	require.NoError(t, err)
	defer transporttest.Close(t, e)
	abandoned := namePrefix + strings.Repeat("a", 32)
	young := namePrefix + strings.Repeat("b", 32)
	stranger := namePrefix + "notes.txt"
	for _, n := range []string{abandoned, young, stranger} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, n), nil, 0o600))
	}
	old := time.Now().Add(-time.Hour)
	for _, n := range []string{name, abandoned, stranger} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, n), old, old))
	}
	removeAbandoned(dir)
	for n, want := range map[string]bool{name: true, abandoned: false, young: true, stranger: true} {
		if _, err := os.Stat(filepath.Join(dir, n)); (err == nil) != want {
			t.Errorf("%s: exists %v (%v), want %v", n, err == nil, err, want)
		}
	}
}

// TestCloseUnmaps checks that no mapping of the segment is left after Close, and that a call after Close is safe.
func TestCloseUnmaps(t *testing.T) {
	e := open(t, Options{Ranks: 2, Planes: 1})
	if mapped(t) == 0 {
		t.Fatal("no mapping of a segment before Close")
	}
	for _, x := range e {
		require.NoError(t, x.Close())
	}
	if n := mapped(t); n != 0 {
		t.Errorf("%d mappings left", n)
	}
	for src := range 2 {
		if _, _, err := e[1-src].Planes()[0].Peek(src); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Peek: %v", err)
		}
	}
	runtime.KeepAlive(e)
}

// TestForkedChildrenDoNotMap checks that the mapping has the kernel's flag "dc" (do not copy on fork).
func TestForkedChildrenDoNotMap(t *testing.T) {
	e := open(t, Options{Ranks: 1, Planes: 1})
	defer transporttest.Close(t, e[0])
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skipf("no smaps: %v", err)
	}
	_, ours, found := strings.Cut(string(smaps), DefaultDir+"/"+namePrefix)
	_, flags, ok := strings.Cut(ours, "VmFlags:")
	if !found || !ok {
		t.Skip("the kernel does not list the flags of mappings")
	}
	flags, _, _ = strings.Cut(flags, "\n")
	if !strings.Contains(flags+" ", " dc ") {
		t.Errorf("flags:%s", flags)
	}
}

// mapped returns the number of mappings of segments in this process.
func mapped(t *testing.T) (n int) {
	f, err := os.Open("/proc/self/maps")
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.Contains(lines.Text(), DefaultDir+"/"+namePrefix) {
			n++
		}
	}
	return n
}

// FuzzParse checks that parse returns a geometry that fits the segment, or an error.
func FuzzParse(f *testing.F) {
	g := mesh.Geometry{Ranks: 2, Planes: 1, Slots: 2, Payload: 8}
	seg := make([]byte, segmentSize(g, 0))
	format(seg, g)
	f.Add(seg)
	f.Add(seg[:headerSize])
	more := make([]byte, segmentSize(g, 64))
	format(more, g)
	f.Add(more)
	f.Fuzz(func(t *testing.T, seg []byte) {
		if g, err := parse(seg); err == nil && segmentSize(g, 0) > len(seg) {
			t.Errorf("%+v for %d bytes", g, len(seg))
		}
	})
}

func BenchmarkShm(b *testing.B) { suite().Benchmark(b) }
