package shimtest

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"lightpath/internal/require"
)

// Resources are the resources of this process.
type Resources struct {
	Goroutines, files, segments, mappings, threads int
	Heap                                           int // MiB in use
}

// Within reports whether r is at most limit. The runtime may add a few threads.
func (r Resources) Within(limit Resources) bool {
	// The number of threads of the Go runtime varies a little.
	return r.threads <= limit.threads+8 && r.Goroutines <= limit.Goroutines && r.files <= limit.files &&
		r.segments <= limit.segments && r.mappings <= limit.mappings
}

// Await waits until this process holds at most r, and reports what it holds if that takes a minute.
func (r Resources) Await(t testing.TB) {
	t.Helper()
	var now Resources
	if !Eventually(func() bool { now = CountResources(t); return now.Within(r) }) {
		t.Errorf("before %+v, after %+v", r, now)
	}
}

// CountResources returns what this process holds now.
func CountResources(t testing.TB) Resources {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	segments, err := filepath.Glob("/dev/shm/lightpath*")
	require.NoError(t, err)
	own := 0
	for _, s := range segments {
		if strings.Contains(string(maps), s) {
			own++
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	return Resources{
		threads: len(threads), Heap: int(mem.HeapAlloc >> 20),
		Goroutines: runtime.NumGoroutine(), files: len(fds), segments: own,
		mappings: strings.Count(string(maps), "/dev/shm/"),
	}
}

// FreePort returns a TCP port of this host that was free.
func FreePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}
