package peers

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lightpath/bench"
)

// session is the rank processes of one contender, waiting for runs.
type session struct {
	name     string
	library  string // as the ranks report it
	started  command
	timeout  time.Duration
	gone     bool          // it has failed
	patience time.Duration // time for ranks to end by themselves
	dir      string
	ranks    []*rankConn
	commands []*exec.Cmd
	exited   chan error // one for each command that ends
	stderr   bench.Tail
}

// rankConn is the socket of one rank.
type rankConn struct {
	net.Conn
	lines *bufio.Scanner
}

// answer is a message of a rank: hello, a report, or that its library lacks the call.
type answer struct {
	bench.Report
	Library     string `json:"library"`
	Unsupported string `json:"unsupported"`
}

// errHungUp reports that a rank has closed its socket.
var errHungUp = errors.New("ended")

// errUnsupported reports that a contender lacks the call. Its ranks continue.
var errUnsupported = errors.New("unsupported")

// startSession starts all ranks of c and waits until each has said hello. Ranks have timeout to say hello, and later to
// answer each run.
func startSession(ctx context.Context, c *contender, p *Programs, s setting, timeout time.Duration) (*session, error) {
	dir, err := os.MkdirTemp("", "lightpath-peers-")
	if err != nil {
		return nil, err
	}
	s.scratch = dir
	ses := &session{name: c.Name, timeout: timeout, patience: 20 * time.Second, dir: dir,
		ranks: make([]*rankConn, s.ranks)}
	if err := ses.meet(ctx, c, p, s); err != nil {
		ses.close()
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return ses, nil
}

// meet starts all ranks and accepts them.
func (s *session) meet(ctx context.Context, c *contender, p *Programs, set setting) error {
	socket := filepath.Join(s.dir, "commands")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	job := make([]string, set.ranks)
	for r := range job {
		job[r] = filepath.Join(s.dir, fmt.Sprintf("job-%d", r))
		text := bench.SessionJob(r, set.ranks, s.dir, socket, c.plain && !set.libraryMemory, set.reserve)
		if err := os.WriteFile(job[r], text, 0o600); err != nil {
			return err
		}
	}
	if err := s.start(ctx, c.commands(p, set, job)); err != nil {
		return err
	}
	return s.greet(listener.(*net.UnixListener))
}

func (s *session) start(ctx context.Context, all []command) error {
	s.started = all[0]
	s.exited = make(chan error, len(all))
	for _, c := range all {
		cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
		cmd.Env = append(os.Environ(), c.env...)
		cmd.Stdout, cmd.Stderr = &s.stderr, &s.stderr
		// Ranks must not outlive this process, and a signal must reach the ranks that a launcher started.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		if err := bench.Start(cmd); err != nil {
			return err
		}
		s.commands = append(s.commands, cmd)
		go func() { s.exited <- cmd.Wait() }()
	}
	return nil
}

// greet accepts every rank.
func (s *session) greet(l *net.UnixListener) error {
	end := time.Now().Add(s.timeout)
	for missing := len(s.ranks); missing > 0; {
		if err := l.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return err
		}
		conn, err := l.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) {
			select {
			case err := <-s.exited:
				s.exited <- err
				return s.explain(fmt.Errorf("ended before its ranks came: %w", cmp.Or(err, bench.ErrEnded)))
			default:
			}
			continue
		}
		if err != nil {
			return s.explain(fmt.Errorf("%d of %d ranks did not come: %w", missing, len(s.ranks), err))
		}
		c := &rankConn{conn, bufio.NewScanner(conn)}
		c.lines.Buffer(make([]byte, 4096), 16<<20)
		hello, err := c.read(end)
		if err != nil || hello.Rank < 0 || hello.Rank >= len(s.ranks) || s.ranks[hello.Rank] != nil {
			conn.Close()
			return s.explain(fmt.Errorf("a rank said no hello: %+v, %w", hello, err))
		}
		s.ranks[hello.Rank], s.library = c, hello.Library
		missing--
	}
	return nil
}

func (c *rankConn) read(end time.Time) (answer, error) {
	var a answer
	if err := c.SetReadDeadline(end); err != nil {
		return a, err
	}
	if !c.lines.Scan() {
		return a, cmp.Or(c.lines.Err(), errHungUp)
	}
	if err := json.Unmarshal(c.lines.Bytes(), &a); err != nil {
		return a, fmt.Errorf("unreadable answer %.200q: %w", c.lines.Bytes(), err)
	}
	return a, nil
}

// sample is one run of all ranks.
type sample struct {
	us    float64 // mean iteration of the slowest rank
	cpuUS float64 // processor time of an iteration, of all ranks together
	wrong int64   // elements
}

// run makes every rank do one run. After an error other than errUnsupported the session cannot be used again.
func (s *session) run(line string) (all sample, err error) {
	end := time.Now().Add(s.timeout)
	for r, c := range s.ranks {
		if _, err := c.Write([]byte(line + "\n")); err != nil {
			return sample{}, s.explain(fmt.Errorf("rank %d: %w", r, err))
		}
	}
	for r, c := range s.ranks {
		a, err := c.read(end)
		switch {
		case err != nil:
			return sample{}, s.explain(fmt.Errorf("rank %d: %w", r, err))
		case a.Error != "":
			return sample{}, s.explain(fmt.Errorf("rank %d: %s", r, a.Error))
		case a.Unsupported != "":
			// All ranks read the same line and give the same answer.
			err = fmt.Errorf("%w: %s", errUnsupported, a.Unsupported)
			for _, other := range s.ranks[r+1:] {
				if _, e := other.read(end); e != nil {
					return sample{}, s.explain(e)
				}
			}
			return sample{}, err
		}
		all.us = max(all.us, a.TimeUS)
		all.cpuUS += a.CPUUS
		all.wrong += a.Wrong
	}
	return all, nil
}

// explain adds the output of the processes. If a rank has hung up, it or its launcher is ending. explain waits for that
// end, because only then the output is complete.
func (s *session) explain(err error) error {
	if errors.Is(err, errHungUp) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		select {
		case ended := <-s.exited:
			s.exited <- ended
		case <-time.After(s.patience):
		}
	}
	if text := strings.Join(strings.Fields(s.stderr.String()), " "); text != "" {
		return fmt.Errorf("%w; %s", err, text)
	}
	return err
}

// close lets ranks end by themselves, then ends the remaining ones.
func (s *session) close() {
	for _, c := range s.ranks {
		if c != nil {
			c.Close()
		}
	}
	left := len(s.commands)
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{0, s.patience}, {syscall.SIGTERM, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		for _, c := range s.commands {
			if step.signal != 0 && left > 0 {
				_ = syscall.Kill(-c.Process.Pid, step.signal) // the process may have ended
			}
		}
		left -= s.await(left, step.wait)
	}
	_ = os.RemoveAll(s.dir) // a temporary directory
}

// await waits until n commands have ended, but not longer than limit. It returns how many have ended.
func (s *session) await(commands int, limit time.Duration) (ended int) {
	end := time.After(limit)
	for ; ended < commands; ended++ {
		select {
		case <-s.exited: //nolint:errcheck // how it has ended is not of interest any more
		case <-end:
			return ended
		}
	}
	return ended
}
