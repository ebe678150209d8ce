package bench

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"lightpath/internal/require"
)

// TestStartOutlivesThreads checks that a process continues when threads of its parent end, as threads of package kernel
// do.
func TestStartOutlivesThreads(t *testing.T) {
	const children = 8
	var all [children]*exec.Cmd
	for i := range all {
		all[i] = exec.Command("cat")
		all[i].SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err := all[i].StdinPipe() // cat ends when it is closed
		require.NoError(t, err)
		started := make(chan error)
		go func() {
			runtime.LockOSThread() // and not unlocked: the runtime ends the thread
			started <- Start(all[i])
		}()
		require.NoError(t, <-started)
		defer func() {
			_ = in.Close()
			if err := all[i].Wait(); err != nil {
				t.Errorf("child %d: %v", i, err)
			}
		}()
	}
	var ended sync.WaitGroup
	for range 4 * children {
		ended.Go(func() { runtime.LockOSThread() })
	}
	ended.Wait()
}

// TestNotices checks that the library's warnings are shown, and no other output of a child.
func TestNotices(t *testing.T) {
	var c Child
	fmt.Fprint(&c.said, "h:5 [0] NCCL WARN plane p0\nplain text\nh:5 [0] NCCL WARN plane p1\n")
	if got := c.notices(); got != "h:5 [0] NCCL WARN plane p0\nh:5 [0] NCCL WARN plane p1\n" {
		t.Errorf("%q", got)
	}
}
