// Package etcd keeps the journal of a controller in etcd: in a cluster elsewhere, or in a
// server within the process that the controllers of one host share.
//
// Whoever rules holds a lease and the leader key, whose create revision is the fencing token.
// Every write is a transaction that is void once that key is another, so a controller that was
// replaced without noticing cannot write; and it notices: it stops by its own clock some time
// before its lease can have run out on the server.
//
// Layer: ocsctl, below package lead. It must not be linked into the library that ranks load.
package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/journal"
)

// Client is a controller's way to the store. Its methods may be called from any goroutine.
type Client struct {
	conf   Config
	etcd   *clientv3.Client
	host   *host // nil: the store is served elsewhere
	id     string
	clock  func() time.Duration
	leader atomic.Pointer[journal.Leader]

	closing context.Context
	cancel  context.CancelFunc
	once    sync.Once
	rules   sync.WaitGroup // goroutines of leaderships
}

var _ journal.Store = (*Client)(nil)

const (
	openTimeout     = 15 * time.Second
	diagnoseTimeout = 3 * time.Second
	dialBackoff     = 250 * time.Millisecond
	retryPause      = 50 * time.Millisecond
	keepAliveGap    = 5 * time.Second
)

// Open connects to the store, serving it where nobody on this host does yet, and checks that
// this program can read it. It gives up when ctx ends, and by itself after 15 s.
func Open(ctx context.Context, conf Config) (*Client, error) {
	if err := conf.complete(); err != nil {
		return nil, err
	}
	endpoints, tls, err := conf.dial()
	if err != nil {
		return nil, err
	}
	c := &Client{conf: conf, clock: bootClock, id: rand.Text()}
	c.leader.Store(new(journal.Leader))
	c.closing, c.cancel = context.WithCancel(context.Background())
	if len(conf.Endpoints) == 0 {
		if c.host, err = serve(conf, c.id); err != nil {
			return nil, err
		}
	}
	c.etcd, err = clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: tls, Logger: quiet(conf.Logger, new(atomic.Bool), zapcore.WriteThenPanic), Context: c.closing,
		DialTimeout: openTimeout, DialKeepAliveTime: keepAliveGap, DialKeepAliveTimeout: keepAliveGap,
		BackoffWaitBetween: retryPause, DialOptions: dialOptions(),
	})
	if err != nil {
		c.end()
		return nil, fmt.Errorf("etcd: endpoints: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if _, err := c.format(ctx); err != nil {
		if !lasting(err) {
			err = fmt.Errorf("etcd: no answer from %s: %w", strings.Join(endpoints, ", "), c.diagnose(err))
		}
		c.end()
		return nil, err
	}
	return c, nil
}

// diagnose says what is wrong with the connection where err only says that there was no answer:
// clientv3 tries again until time is up, this does not.
func (c *Client) diagnose(err error) error {
	ctx, cancel := context.WithTimeout(c.closing, diagnoseTimeout)
	defer cancel()
	_, why := pb.NewKVClient(c.etcd.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(c.key(formatKey))})
	if code(why) != codes.Unavailable {
		return err
	}
	return errors.New(status.Convert(why).Message())
}

// dialOptions let a client find a server that was started again soon.
func dialOptions() []grpc.DialOption {
	retry := backoff.Config{BaseDelay: retryPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: dialBackoff}
	return []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second})}
}

// Close ends the connection, and with it, without resigning, the rule of this client: its lease
// runs out. A store that this client serves goes on at another controller of this host.
func (c *Client) Close() error {
	c.once.Do(c.end)
	return nil
}

func (c *Client) end() {
	c.cancel()
	c.rules.Wait()
	if c.etcd != nil {
		_ = c.etcd.Close() // says that it was closed
	}
	if c.host != nil {
		c.host.close()
	}
}

// Leader implements [journal.Store].
func (c *Client) Leader() journal.Leader { return *c.leader.Load() }

// key is a key of this store.
func (c *Client) key(name string) string { return c.conf.Prefix + name }

// stored is a version of a value: its revision, 0 where there is none.
type stored struct {
	value []byte
	mod   int64
}

// format reads the format of the store, and refuses one that this program does not know.
func (c *Client) format(ctx context.Context) (stored, error) {
	resp, err := c.etcd.Get(ctx, c.key(formatKey))
	if err != nil {
		return stored{}, fmt.Errorf("etcd: %s: %w", c.key(formatKey), err)
	}
	if len(resp.Kvs) == 0 {
		return stored{}, nil
	}
	s := stored{value: resp.Kvs[0].Value, mod: resp.Kvs[0].ModRevision}
	return s, journal.DecodeFormat(c.key(formatKey), s.value, c.conf.Software)
}

// newLeaderValue describes this controller.
func (c *Client) newLeaderValue() leaderValue {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return leaderValue{Version: journal.Format, Name: c.conf.Name, Software: c.conf.Software, Address: c.conf.Address, Instance: c.id, Host: name, PID: os.Getpid(), Since: time.Now().UTC()}
}

// lasting reports whether trying again would not help: the request is refused, not lost.
func lasting(err error) bool {
	switch code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.ResourceExhausted, codes.Unimplemented, codes.OutOfRange:
		return true
	}
	return errors.Is(err, ocsctl.ErrVersion) || errors.Is(err, journal.ErrCorrupt)
}

// code is the gRPC code of an error of the client, in whichever form it comes.
func code(err error) codes.Code {
	var coded interface{ Code() codes.Code }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return status.Code(err)
}
