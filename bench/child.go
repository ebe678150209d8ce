package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// ErrEnded reports a process that was still needed and has ended with status 0.
var ErrEnded = errors.New("exit status 0")

// Child is a process that ends when this one does. Its standard error is kept for error messages. Use the embedded
// command before Start to set the environment, pipes or attributes.
type Child struct {
	*exec.Cmd
	said Tail
}

// NewChild returns the child that runs argv. It is killed when ctx ends.
func NewChild(ctx context.Context, argv ...string) *Child {
	c := &Child{Cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stderr = &c.said
	return c
}

// Start starts the child as [Start] does.
func (c *Child) Start() error { return Start(c.Cmd) }

// Start starts a command whose Pdeathsig is set. The kernel sends that signal when the thread that started the process
// ends, not when its whole process ends. Package kernel ends threads that have been in a network namespace. So Start
// uses a thread that never ends.
func Start(cmd *exec.Cmd) error {
	done := make(chan error)
	starts() <- func() { done <- cmd.Start() }
	return <-done
}

// starts returns the queue of the thread that starts processes.
var starts = sync.OnceValue(func() chan<- func() {
	queue := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range queue {
			start()
		}
	}()
	return queue
})

// Explain adds the last lines of the child's standard error to err. A nil error becomes [ErrEnded].
func (c *Child) Explain(err error) error {
	err = cmp.Or(err, ErrEnded)
	if text := strings.TrimSpace(c.said.String()); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// notices returns the lines of the child's standard error that the library writes there at every level of NCCL_DEBUG.
func (c *Child) notices() string {
	var b strings.Builder
	for line := range strings.Lines(c.said.String()) {
		if strings.Contains(line, " NCCL WARN ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Tail is a writer that keeps the last bytes written to it. The zero value is ready; goroutines may write at the
// same time.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// tailBytes is how much a Tail keeps: enough of a process's standard error to explain its end.
const tailBytes = 2000

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > tailBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
