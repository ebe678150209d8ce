package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"lightpath/bench"
)

// process is a command that runs beside the ranks: a controller, or a switch.
type process struct {
	ctx  context.Context // of waits
	what string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended, and err is set
	err  error

	mu    sync.Mutex
	lines []string // of standard error
}

// start runs the command, which does not outlive this process.
func start(ctx context.Context, what, path string, args ...string) (*process, error) {
	p := &process{ctx: ctx, what: what, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := bench.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("faults: cannot start %s: %w", what, err)
	}
	go func() {
		defer close(p.done)
		p.read(out)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

func (p *process) read(r io.Reader) {
	for s := bufio.NewScanner(r); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
	}
}

// said returns the first line with text after the first after lines.
func (p *process) said(text string, after int) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines[after:] {
		if strings.Contains(l, text) {
			return l, true
		}
	}
	return "", false
}

// told returns the number of lines so far.
func (p *process) told() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lines)
}

// last returns the last lines that the process wrote.
func (p *process) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines[max(0, len(p.lines)-3):], "; ")
}

// isClosed reports whether what done belongs to has ended.
func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// await waits for a line with text.
func (p *process) await(text string, after int) (found string, err error) {
	err = wait(p.ctx, fmt.Sprintf("%s says %q", p.what, text), patience, func() (ok bool, err error) {
		found, ok = p.said(text, after)
		if !ok && isClosed(p.done) {
			return false, fmt.Errorf("%s ended: %w: %s", p.what, errors.Join(p.err, errEnded), p.last())
		}
		return ok, nil
	})
	return found, err
}

var errEnded = errors.New("unexpected end")

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("faults: %s: %w", p.what, err)
	}
	return nil
}

// kill ends the process at once, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// patience bounds each wait. On an idle machine the event takes milliseconds.
const patience = 30 * time.Second

// wait polls until ok, an error, the end of ctx, or the bound.
func wait(ctx context.Context, what string, bound time.Duration, ok func() (bool, error)) error {
	for deadline := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		switch done, err := ok(); {
		case err != nil:
			return fmt.Errorf("faults: waiting until %s: %w", what, err)
		case done:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("faults: waiting until %s: %w", what, ctx.Err())
		case time.Now().After(deadline):
			return fmt.Errorf("faults: waited %v in vain until %s", bound, what)
		}
	}
}
