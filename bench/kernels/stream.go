package kernels

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"lightpath/bench"
)

// streamProcess is a process of lightpath-stream, which runs STREAM's loops on request.
type streamProcess struct {
	*bench.Child
	in   io.WriteCloser
	out  *bufio.Scanner
	stop func() // ends the process; later calls do nothing
}

func startStream(ctx context.Context, o *Options, threads int) (*streamProcess, error) {
	s := &streamProcess{Child: bench.NewChild(ctx, o.Stream, strconv.Itoa(o.Bytes), strconv.Itoa(threads))}
	var err error
	if s.in, err = s.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	s.stop = sync.OnceFunc(func() {
		_ = s.in.Close() // the process ends at the end of its input
		_ = s.Wait()     // its status does not matter: it has answered all requests
	})
	return s, s.Start()
}

// lines returns a line for each of STREAM's loops, with ordinary stores and with stores past the caches (-nt).
func (s *streamProcess) lines(threads int) []*Line {
	var all []*Line
	for _, loop := range []Line{{Name: "copy", Arrays: 2}, {Name: "add", Arrays: 3}, {Name: "triad", Arrays: 3}} {
		for _, stores := range []string{"", "-nt"} {
			l := &Line{Name: loop.Name + stores, Arrays: loop.Arrays, Threads: threads, Stream: true}
			l.run = func() (time.Duration, error) { return s.time(l.Name) }
			all = append(all, l)
		}
	}
	return all
}

// time makes the process run a loop once.
func (s *streamProcess) time(loop string) (time.Duration, error) {
	if _, err := fmt.Fprintln(s.in, loop); err != nil {
		return 0, s.explain(err)
	}
	if !s.out.Scan() {
		return 0, s.explain(nil)
	}
	ns, err := strconv.ParseInt(s.out.Text(), 10, 64)
	if err != nil || ns <= 0 {
		return 0, fmt.Errorf("lightpath-stream: %q is no time in ns", s.out.Text())
	}
	return time.Duration(ns), nil
}

// explain ends the process, so that its standard error is complete, and adds that to err.
func (s *streamProcess) explain(err error) error {
	s.stop()
	return fmt.Errorf("lightpath-stream: %w", s.Explain(err))
}
