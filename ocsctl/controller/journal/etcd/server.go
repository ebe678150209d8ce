package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// host serves the store of a directory to the controllers of this host while it holds the directory's lock. The kernel
// releases the lock when the process ends; another controller then serves the store. So there is never more than one
// server.
type host struct {
	conf    Config
	id      string        // of the client
	before  string        // the client that held the lock before; fixed once serving is closed
	serving chan struct{} // closed when the server runs
	streams context.Context
	cut     context.CancelFunc // ends the streams of the server, which waits for them when it stops
	stop    chan struct{}
	closed  atomic.Bool // mutes etcd's log while it stops
	done    sync.WaitGroup
}

// Timing of the embedded server. It has no peers, so its elections cannot fail. The shortest lease is one and a half
// election timeouts, so the timeout is short.
const (
	serverTick     = 50 * time.Millisecond
	serverElection = 500 * time.Millisecond
	serverStart    = 30 * time.Second
	lockPoll       = 100 * time.Millisecond
)

// serve starts to serve conf.Dir or, if another controller does, to wait for its end. An error means that this
// controller may serve the store, but the store is unusable.
func serve(conf Config, id string) (*host, error) {
	if err := os.MkdirAll(conf.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("etcd: dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(conf.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("etcd: dir: %w", err)
	}
	h := &host{conf: conf, id: id, serving: make(chan struct{}), stop: make(chan struct{})}
	h.streams, h.cut = context.WithCancel(context.Background())
	var server *embed.Etcd
	locked, err := tryLock(lock)
	if err == nil && locked {
		server, err = h.succeed(lock)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	h.done.Go(func() {
		defer lock.Close()
		h.run(lock, server)
	})
	return h, nil
}

func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("etcd: dir: lock %s: %w", f.Name(), err)
	}
	return true, nil
}

// run waits for the lock if there is no server yet, and stops the server at the end.
func (h *host) run(lock *os.File, server *embed.Etcd) {
	defer h.cut()
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for said := ""; server == nil; {
		select {
		case <-h.stop:
			return
		case <-poll.C:
		}
		locked, err := tryLock(lock)
		if locked {
			server, err = h.succeed(lock)
		}
		if err != nil {
			if err.Error() != said {
				said = err.Error()
				h.conf.Logger.Error("the journal cannot be served", "dir", h.conf.Dir, "error", err)
			}
			if unix.Flock(int(lock.Fd()), unix.LOCK_UN) != nil {
				return
			}
		}
	}
	select {
	case <-h.stop:
	case err := <-server.Err():
		h.conf.Logger.Error("the journal's server has failed", "dir", h.conf.Dir, "error", err)
	case <-server.Server.StopNotify():
		h.conf.Logger.Error("the journal's server has stopped", "dir", h.conf.Dir)
	}
	h.cut()
	server.Close()
}

// endable lets a stream of the server end with the host.
func (h *host) endable(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	defer context.AfterFunc(h.streams, cancel)()
	return handle(service, &endableStream{ServerStream: s, ctx: ctx})
}

type endableStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *endableStream) Context() context.Context { return s.ctx }

// succeed starts the server after getting the lock, and remembers which client held the lock before.
func (h *host) succeed(lock *os.File) (*embed.Etcd, error) {
	text, err := io.ReadAll(io.NewSectionReader(lock, 0, 1<<10))
	if err == nil && h.before == "" {
		h.before = string(text)
	}
	if err == nil {
		err = lock.Truncate(0)
	}
	if err == nil {
		_, err = lock.WriteAt([]byte(h.id), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("etcd: dir: %w", err)
	}
	server, err := h.start()
	if err == nil {
		close(h.serving)
	}
	return server, err
}

// ended reports whether a client is known to have ended: it held the directory's lock before this one.
func (h *host) ended(id string) bool {
	select {
	case <-h.serving:
		return id != "" && id == h.before
	default:
		return false
	}
}

// start starts the server; the caller holds the lock. If etcd cannot open the directory in time, its goroutine stays.
func (h *host) start() (*embed.Etcd, error) {
	type outcome struct {
		server *embed.Etcd
		err    error
	}
	last := newLastWords()
	done := make(chan outcome, 1)
	go func() {
		server, err := embed.StartEtcd(h.embedded(last))
		done <- outcome{server, err}
	}()
	limit := time.NewTimer(serverStart)
	defer limit.Stop()
	var o outcome
	select {
	case o = <-done:
	case words := <-last.said:
		o.err = errors.New(words)
	case <-limit.C:
		o.err = fmt.Errorf("it does not open in %v", serverStart)
	}
	if o.err == nil {
		select {
		case <-o.server.Server.ReadyNotify():
			last.started.Store(true)
			return o.server, nil
		case <-o.server.Server.StopNotify():
			o.err = errors.New("the server stopped")
		case o.err = <-o.server.Err():
		case words := <-last.said:
			o.err = errors.New(words)
		case <-h.stop:
			o.err = errors.New("closed")
		case <-limit.C:
			o.err = fmt.Errorf("not ready after %v", serverStart)
		}
		o.server.Close()
	}
	return nil, fmt.Errorf("etcd: dir: %s: %w", h.conf.Dir, o.err)
}

func (h *host) embedded(last *lastWords) *embed.Config {
	c := embed.NewConfig()
	c.Name = "lightpath"
	c.Dir = filepath.Join(h.conf.Dir, "data")
	socket := url.URL{Scheme: "unix", Path: h.conf.socket()}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	// There are no peers; nothing listens at this address.
	nowhere := url.URL{Scheme: "unix", Path: filepath.Join(h.conf.Dir, "peers.sock")}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{nowhere}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.TickMs, c.ElectionMs = uint(serverTick.Milliseconds()), uint(serverElection.Milliseconds())
	c.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(h.endable)}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(quiet(h.conf.Logger, &h.closed, last))
	return c
}

// close stops serving; another controller of this host takes over.
func (h *host) close() {
	h.closed.Store(true)
	close(h.stop)
	h.done.Wait()
}
