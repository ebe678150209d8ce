package comm_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/shm"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

// TestNoFilesLeft checks a process with too few file descriptors. Making a communicator ends, the ranks that lack
// descriptors say so, and nothing leaks. With some descriptors back, the next communicator works.
func TestNoFilesLeft(t *testing.T) {
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TRANSPORT", transport)
			require.NoError(t, shimtest.RunRanks(2)) // a resource that the process makes once
			before := shimtest.CountResources(t)
			t.Setenv("LIGHTPATH_TIMEOUT", "300ms") // a rank that waits for a rank without descriptors gives up
			few := []int{0}
			if transport == "tcp" {
				few = append(few, 4) // somewhere in the middle, after as long as it takes
			}
			for _, spare := range few {
				errs := withFiles(t, spare)
				// What an earlier test has left is closed now and then, and makes room.
				for i := 0; i < 5 && spare == 0 && slices.ContainsFunc(errs, hasFiles); i++ {
					errs = withFiles(t, spare)
				}
				for r, err := range errs {
					if spare == 0 && hasFiles(err) {
						t.Errorf("rank %d: %v", r, err)
					}
					if err != nil && strings.Contains(err.Error(), "\n") {
						t.Errorf("rank %d: not one line: %v", r, err)
					}
				}
			}
			t.Setenv("LIGHTPATH_TIMEOUT", "60s")
			if err := shimtest.RunRanks(2); err != nil {
				t.Error(err)
			}
			before.Await(t)
		})
	}
}

// withFiles makes a communicator of two ranks while there are few descriptors to spare.
func withFiles(t *testing.T, spare int) []error {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	cfg, err := settings.Load()
	require.NoError(t, err)
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	few := old
	few.Cur = fileNumber(spare)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Skip(err)
	}
	ranks := []shim.InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}}
	errs := shimtest.InitAll(t, ranks, cfg)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	shimtest.InitAll(t, ranks, cfg) // otherwise the id's listener would wait for them
	return errs
}

// hasFiles reports whether a rank has failed for another reason than descriptors, or not at all.
func hasFiles(err error) bool { return !errors.Is(err, unix.EMFILE) }

// fileNumber is the number below which so many descriptors are free.
func fileNumber(free int) (n uint64) {
	for ; ; n++ {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err != nil {
			if free == 0 {
				return n
			}
			free--
		}
	}
}

// runProgram runs a program of this test's executable and returns what it writes.
func runProgram(t *testing.T, name string, attr *syscall.SysProcAttr, env ...string) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), "LP_TEST_PROGRAM="+name), env...)
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("needs the right to make a namespace: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestFullSharedMemory: on a /dev/shm with little room ranks settle for less, on one with none they say
// so, and nothing is left there.
func TestFullSharedMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small /dev/shm of its own")
	}
	for size, want := range map[string]string{"8k": shm.ErrNoSpace.Error(), "1m": "well", "64m": "well"} {
		out := runProgram(t, "full", &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}, "LP_TEST_SIZE="+size,
			"LIGHTPATH_TRANSPORT=shm", "LIGHTPATH_TIMEOUT=60s")
		if strings.HasPrefix(out, "skip") {
			t.Skip(out)
		}
		first, left, _ := strings.Cut(out, "\n")
		if !strings.Contains(first, want) || left != "0 files left\n" {
			t.Errorf("/dev/shm of %s: want %q and nothing left, got %s", size, want, out)
		}
	}
}

// fullProcess is a process with a small /dev/shm.
func fullProcess() int {
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", shm.DefaultDir, "tmpfs", 0, "size="+os.Getenv("LP_TEST_SIZE")))
	if err != nil {
		fmt.Println("skip: cannot mount a file system:", err)
		return 0
	}
	if err := shimtest.RunRanks(3); err != nil {
		fmt.Println(err)
	} else {
		fmt.Println("well")
	}
	left, err := os.ReadDir(shm.DefaultDir)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(len(left), "files left")
	return 0
}

// TestNarrowAddressSpace: ranks that cannot map their shared memory say so, and can when there is room.
func TestNarrowAddressSpace(t *testing.T) {
	if shimtest.RaceEnabled {
		t.Skip("the race detector maps terabytes")
	}
	out := runProgram(t, "narrow", nil, "LIGHTPATH_TRANSPORT=shm", "LIGHTPATH_TIMEOUT=60s")
	lines := strings.Split(out, "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], unix.ENOMEM.Error()) || lines[1] != "well" {
		t.Errorf("want an error of memory and then well, got %s", out)
	}
}

// narrowProcess is a process whose address space has no room for a segment.
func narrowProcess() int {
	// Threads and heap that a communicator needs are there when the room is taken away: without a
	// thread that it wants the runtime would end the process.
	spareThreads(32)
	if err := shimtest.RunRanks(8); err != nil {
		fmt.Println(err)
		return 1
	}
	size, err := settledSize()
	var old unix.Rlimit
	if err = errors.Join(err, unix.Getrlimit(unix.RLIMIT_AS, &old)); err != nil {
		fmt.Println(err)
		return 1
	}
	narrow := old
	narrow.Cur = size + 16<<20 // half a segment of 8 ranks
	if err := unix.Setrlimit(unix.RLIMIT_AS, &narrow); err != nil {
		fmt.Println(err)
		return 1
	}
	err = shimtest.RunRanks(8)
	if e := unix.Setrlimit(unix.RLIMIT_AS, &old); e != nil {
		fmt.Println(e)
		return 1
	}
	fmt.Println(err)
	if err := shimtest.RunRanks(8); err != nil {
		fmt.Println(err)
	} else {
		fmt.Println("well")
	}
	return 0
}

// spareThreads has the runtime make that many threads, and keep them.
func spareThreads(n int) {
	var all, there sync.WaitGroup
	there.Add(n)
	for range n {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			there.Done()
			there.Wait()
		})
	}
	all.Wait()
}

// settledSize returns the bytes of this process's address space, after the collector has unmapped the memory of
// communicators that are gone.
func settledSize() (size uint64, err error) {
	for same := 0; same < 20; same++ {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
		text, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return 0, err
		}
		var pages uint64
		if _, err := fmt.Sscan(string(text), &pages); err != nil {
			return 0, err
		}
		if now := pages * uint64(os.Getpagesize()); now != size {
			same, size = 0, now
		}
	}
	return size, nil
}

// TestCreateDestroyLeavesNothing makes and frees many communicators, 10 000 in make test-long.
func TestCreateDestroyLeavesNothing(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "shm", "tcp"}, func(t *testing.T) {
		cycle := func() { // nothing of the test's keeps the communicators
			require.NoError(t, shimtest.RunRanks(2))
		}
		cycle() // a resource that the process makes once
		before := shimtest.CountResources(t)
		cycles := 70 // 210 in all
		switch {
		case testing.Short():
			cycles = 10
		case os.Getenv("LIGHTPATH_TEST_LONG") != "":
			cycles = 3334
		}
		for range cycles {
			cycle()
		}
		var after shimtest.Resources
		if !shimtest.Eventually(func() bool {
			after = shimtest.CountResources(t)
			return after.Within(before) && after.Heap <= before.Heap+8
		}) {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
}

// TestFailedInitLeavesNothing: refused and timed out communicators too.
func TestFailedInitLeavesNothing(t *testing.T) {
	t.Setenv("LIGHTPATH_TIMEOUT", "20ms")
	before := shimtest.CountResources(t)
	for range 5 {
		id, err := shim.NewUniqueID()
		require.NoError(t, err)
		if _, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: 0}}); err == nil {
			t.Fatal("a communicator without its second rank")
		}
	}
	before.Await(t)
}
