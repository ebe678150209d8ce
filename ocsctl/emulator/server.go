package emulator

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/ocsctl/shmring"
)

// Errors of a switch that a caller may want to tell apart.
var (
	// ErrRunning: another switch serves this socket.
	ErrRunning = errors.New("already running")
	// ErrPortBusy: a rank is attached to this port.
	ErrPortBusy = errors.New("another rank is attached")
	// ErrVersion: the two ends are of different versions.
	ErrVersion = errors.New("version mismatch")
	// ErrStopped: the switch has been closed.
	ErrStopped = errors.New("switch is stopped")
)

// Server is a running switch. Safe for concurrent use.
type Server struct {
	cfg      *Config
	listener *net.UnixListener
	lock     *os.File
	status   *memory // the status page
	bellMem  *memory // the switch's own doorbell
	bell     *shmring.Doorbell
	fabric   *fabric // the switching thread's alone

	mu       sync.Mutex
	commands []func(*fabric, int64)
	stopped  bool
	sessions map[*session]struct{}
	wg       sync.WaitGroup // accept loop and sessions
	core     chan struct{}  // closed when the switching thread has ended
	closed   sync.Once
	closeErr error
}

// Start makes a switch and serves it until Close. A socket left over by a dead switch is
// replaced; a living one is ErrRunning.
func Start(config Config) (*Server, error) {
	cfg, err := config.complete()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, sessions: map[*session]struct{}{}, core: make(chan struct{})}
	if err := s.open(); err != nil {
		_ = s.release() // the first error counts
		return nil, err
	}
	go s.run()
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

// open obtains everything that can fail.
func (s *Server) open() (err error) {
	if s.lock, err = lockSocket(s.cfg.Socket); err != nil {
		return err
	}
	if s.status, err = newMemory("lightpath-ocs-status", statusSize(len(s.cfg.Planes), s.cfg.Ports)); err != nil {
		return err
	}
	if err = s.status.sealWrites(); err != nil {
		return err
	}
	if s.bellMem, err = newMemory("lightpath-ocs-bell", shmring.DoorbellSize); err != nil {
		return err
	}
	if s.bell, err = shmring.NewDoorbell(s.bellMem.bytes); err != nil {
		return err
	}
	var log *frameLog
	if s.cfg.FrameLog != "" {
		if log, err = newFrameLog(s.cfg.FrameLog, s.cfg.Ports, len(s.cfg.Planes)); err != nil {
			return err
		}
	}
	dev := s.cfg.Device
	if dev == nil {
		dev = NewMemoryDevice(s.cfg.Initial)
	}
	s.fabric = newFabric(s.cfg, dev, statusPage{s.status.bytes, s.cfg.Ports}, log)
	s.fabric.onBroken = func(ss *session, err error) {
		ss.broken.Store(&err)
		_ = ss.conn.CloseRead()
	}
	if s.listener, err = listen(s.cfg.Socket); err != nil {
		return err
	}
	return nil
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: try again when some may have been freed
			time.Sleep(50 * time.Millisecond)
			continue
		}
		ss := &session{server: s, conn: &conn{UnixConn: c}, out: make(chan *message, outQueue), quit: make(chan struct{})}
		s.mu.Lock()
		if s.stopped || !trusted(c) {
			s.mu.Unlock()
			_ = c.Close()
			continue
		}
		s.sessions[ss] = struct{}{}
		s.wg.Add(1)
		s.mu.Unlock()
		go func() {
			defer s.wg.Done()
			ss.serve()
		}()
	}
}

// do hands a command to the switching thread; commands are executed in order.
func (s *Server) do(cmd func(f *fabric, now int64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	s.commands = append(s.commands, cmd)
	s.bell.Ring()
	return nil
}

// call is do, and waits until the command has been executed.
func (s *Server) call(cmd func(f *fabric, now int64)) error {
	done := make(chan struct{})
	if err := s.do(func(f *fabric, now int64) { cmd(f, now); close(done) }); err != nil {
		return err
	}
	<-done
	return nil
}

// enter attaches a session; unless final, a fault that may be about to be cleared counts
// as a busy port.
func (s *Server) enter(ss *session, final bool) error {
	var err error
	if e := s.call(func(f *fabric, now int64) {
		if !final && f.faulted() {
			err = ErrPortBusy
			return
		}
		err = f.attach(ss, now)
	}); e != nil {
		return e
	}
	return err
}

// leave ends a session and frees its memory once the switching thread is done with it.
func (s *Server) leave(ss *session, clean bool) {
	if ss.id != 0 {
		_ = s.call(func(f *fabric, now int64) { f.detach(ss, clean, now) })
	}
	s.mu.Lock()
	delete(s.sessions, ss)
	stopped := s.stopped
	s.mu.Unlock()
	if stopped {
		<-s.core
	}
	ss.free()
}

// run is the switching thread. It sleeps on the switch's doorbell until the next frame or
// switch is due; ranks ring it when they have put something into a ring.
func (s *Server) run() {
	runtime.LockOSThread()
	defer close(s.core)
	// Timers to the nanosecond instead of 50 us, and before the ranks where that is allowed:
	// both improve latency only, so failing is fine.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10)
	clock := monotonic()
	for {
		next := s.fabric.step(clock())
		ran, stop := s.execute(clock)
		if stop {
			return
		}
		if ran || next <= clock() {
			continue
		}
		armed := s.bell.Arm()
		next = min(s.fabric.step(clock()), clock()+int64(time.Second))
		if !s.pending() {
			s.bell.Wait(armed, time.Duration(next-clock()))
		}
	}
}

// execute runs the queued commands; stop is set with the last ones.
func (s *Server) execute(clock func() int64) (ran, stop bool) {
	s.mu.Lock()
	commands := s.commands
	s.commands = nil
	stop = s.stopped
	s.mu.Unlock()
	for _, cmd := range commands {
		cmd(s.fabric, clock())
	}
	return len(commands) > 0, stop
}

// pending reports whether execute has something to do.
func (s *Server) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.commands) > 0 || s.stopped
}

// monotonic returns a clock of CLOCK_MONOTONIC that makes no system call.
func monotonic() func() int64 {
	var ts unix.Timespec
	start := time.Now()
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	base := ts.Nano()
	return func() int64 { return base + int64(time.Since(start)) }
}

func (s *Server) geometry() geometry { return s.fabric.geo }

func (s *Server) info() *fabricInfo {
	i := &fabricInfo{Ports: s.cfg.Ports, Slots: s.cfg.Slots, MTU: s.cfg.MTU}
	for _, p := range s.cfg.Planes {
		i.Planes = append(i.Planes, PlaneInfo{p.Name, p.BandwidthBitsPerSec, int64(p.Reconfig), int64(p.ReconfigPerPort)})
	}
	return i
}

// FlushLog returns when every frame that has ended so far is in the log file, and reports
// what failed in writing it.
func (s *Server) FlushLog() error {
	answer := make(chan error, 1)
	if err := s.do(func(f *fabric, _ int64) {
		if f.log == nil {
			answer <- errors.New("emulator: the switch keeps no frame log")
			return
		}
		f.log.flush(answer)
	}); err != nil {
		return err
	}
	return <-answer
}

// Stats returns the counters of every plane.
func (s *Server) Stats() ([]PlaneStats, error) {
	var all []PlaneStats
	err := s.call(func(f *fabric, _ int64) {
		for _, pl := range f.planes {
			all = append(all, pl.stats)
		}
	})
	return all, err
}

// Close disconnects every rank, completes the log and removes the socket. Idempotent; it
// returns what failed in writing the log.
func (s *Server) Close() error {
	s.closed.Do(func() {
		s.listener.Close()
		s.mu.Lock()
		s.stopped = true
		for ss := range s.sessions {
			ss.conn.shut()
		}
		s.bell.Ring()
		s.mu.Unlock()
		<-s.core
		s.wg.Wait()
		s.closeErr = s.release()
	})
	return s.closeErr
}

// release frees what open obtained; the switching thread has ended or never ran.
func (s *Server) release() error {
	var err error
	if s.fabric != nil && s.fabric.log != nil {
		err = s.fabric.log.close()
	}
	if s.listener != nil {
		s.listener.Close()
	}
	s.status.close()
	s.bellMem.close()
	if s.lock != nil {
		os.Remove(s.lock.Name())
		s.lock.Close()
	}
	return err
}
