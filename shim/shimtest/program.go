package shimtest

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/memory"
	"lightpath/shim/result"
)

// RunRanks makes a communicator of n ranks in this process, uses it and destroys it.
func RunRanks(n int) error {
	id, err := shim.NewUniqueID()
	if err != nil {
		return err
	}
	args := make([]shim.InitArgs, n)
	for r := range args {
		args[r] = shim.InitArgs{ID: id, Ranks: n, Rank: r}
	}
	comms, err := shim.Init(args)
	if err != nil {
		return err
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() { errs[r] = errors.Join(CheckSums(c), c.Destroy()) })
	}
	wg.Wait()
	for _, c := range comms {
		<-c.Released()
	}
	return errors.Join(errs...)
}

// runRank is the program "rank". It joins a communicator and calls AllReduce until a call fails. It prints the number
// of calls, from the fourth on, and then the error. From then on LP_TEST_LIMIT is its LIGHTPATH_TIMEOUT: so the time
// that ranks take to meet does not count.
func runRank() int {
	var a shim.InitArgs
	if _, err := fmt.Sscan(os.Getenv("LP_TEST_RANK"), &a.Rank, &a.Ranks); err != nil {
		panic(err)
	}
	if raw, err := hex.DecodeString(os.Getenv("LP_TEST_ID")); err != nil {
		panic(err)
	} else if len(raw) > 0 {
		a.ID = shim.UniqueID(raw)
	} else if a.ID, err = shim.NewUniqueID(); err != nil { // NCCL_COMM_ID says where
		panic(err)
	}
	comms, err := shim.Init([]shim.InitArgs{a})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	buf := make([]float32, 100000)
	if os.Getenv("LP_TEST_MEMORY") == "region" {
		if buf, err = regionOfFloats(len(buf)); err != nil {
			panic(err)
		}
	}
	for i := 0; ; i++ {
		if err := shim.Run([]calls.Call{AllReduce(comms[0], buf)}); err != nil {
			fmt.Println("error:", result.Of(err), err)
			_ = comms[0].Destroy()
			<-comms[0].Released()
			return 0
		}
		if limit := os.Getenv("LP_TEST_LIMIT"); i == 3 && limit != "" {
			if comms[0].Cfg.Timeout, err = time.ParseDuration(limit); err != nil {
				panic(err)
			}
		}
		if i >= 3 {
			fmt.Println("called", i)
		}
	}
}

// RankProcess is a process of the program "rank".
type RankProcess struct {
	*exec.Cmd
	Calls    atomic.Int64 // it says to have made
	LastLine chan string  // its last output; "" if it was killed
}

// StartProcess starts a command that runs the program "rank". The test kills it at its end.
func StartProcess(t *testing.T, cmd *exec.Cmd) *RankProcess {
	t.Helper()
	p := &RankProcess{Cmd: cmd, LastLine: make(chan string, 1)}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		said := ""
		for lines := bufio.NewScanner(out); lines.Scan(); said = lines.Text() {
			var n int64
			if _, err := fmt.Sscanf(lines.Text(), "called %d", &n); err == nil {
				p.Calls.Store(n)
			}
		}
		if strings.HasPrefix(said, "called ") {
			said = ""
		}
		p.LastLine <- said
	}()
	return p
}

// StartRanks starts n ranks as processes and returns when all of them have made calls.
func StartRanks(t *testing.T, n int) []*RankProcess {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	all := make([]*RankProcess, n)
	for r := range all {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=rank", fmt.Sprintf("LP_TEST_RANK=%d %d", r, n),
			"LP_TEST_ID="+hex.EncodeToString(id[:]))
		all[r] = StartProcess(t, cmd)
	}
	AwaitCalls(t, all)
	return all
}

// AwaitCalls waits until all ranks have made calls.
func AwaitCalls(t *testing.T, all []*RankProcess) {
	t.Helper()
	for r, p := range all {
		if !Eventually(func() bool { return p.Calls.Load() > 0 || len(p.LastLine) > 0 }) || p.Calls.Load() == 0 {
			t.Fatalf("rank %d does not get going", r)
		}
	}
}

// regionOfFloats returns memory as ncclMemAlloc makes it. It is never freed.
func regionOfFloats(n int) ([]float32, error) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	size := (4*n + memory.PageSize - 1) / memory.PageSize * memory.PageSize
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	memory.Add(memory.Region{Base: uintptr(base), Size: uintptr(size), FD: fd})
	return unsafe.Slice((*float32)(base), n), nil
}
