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

// Client is a controller's connection to the store. Its methods may be called from any goroutine.
type Client struct {
	conf   Config
	etcd   *clientv3.Client
	host   *host // nil: the store is an etcd cluster elsewhere
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

// Open connects to the store and checks that this program can read it. It serves a store in a directory if no other
// controller of this host does. It returns an error when ctx ends, at the latest after 15 s.
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
		Endpoints: endpoints, TLS: tls, Context: c.closing,
		Logger:      quiet(conf.Logger, new(atomic.Bool), zapcore.WriteThenPanic),
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

// diagnose returns the reason why there was no answer. clientv3 hides it, since it retries until its time is up;
// diagnose sends one request without retries.
func (c *Client) diagnose(err error) error {
	ctx, cancel := context.WithTimeout(c.closing, diagnoseTimeout)
	defer cancel()
	_, why := pb.NewKVClient(c.etcd.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(c.key(formatKey))})
	if code(why) != codes.Unavailable {
		return err
	}
	return errors.New(status.Convert(why).Message())
}

// dialOptions has a client reach the store directly, whatever proxy the environment names for the web. Backoffs are
// short, so that a client soon finds a restarted server.
func dialOptions() []grpc.DialOption {
	retry := backoff.Config{BaseDelay: retryPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: dialBackoff}
	return []grpc.DialOption{grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second})}
}

// Close ends the connection, and the rule of this client without resigning: its lease expires. If this client serves
// the store, another controller of this host takes that over.
func (c *Client) Close() error {
	c.once.Do(c.end)
	return nil
}

func (c *Client) end() {
	c.cancel()
	c.rules.Wait()
	if c.etcd != nil {
		_ = c.etcd.Close() // its error only says that it was closed
	}
	if c.host != nil {
		c.host.close()
	}
}

// Leader implements [journal.Store].
func (c *Client) Leader() journal.Leader { return *c.leader.Load() }

// key returns the full key of a name in this store.
func (c *Client) key(name string) string { return c.conf.Prefix + name }

// stored is a value and the revision of its last write; 0: there is no value.
type stored struct {
	value []byte
	mod   int64
}

// format reads the format of the store, and returns an error for one that this program does not know.
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

// newLeaderValue returns the value of the leader key for this controller.
func (c *Client) newLeaderValue() leaderValue {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return leaderValue{
		Version: journal.Format, Name: c.conf.Name, Software: c.conf.Software, Address: c.conf.Address,
		Instance: c.id, Host: name, PID: os.Getpid(), Since: time.Now().UTC(),
	}
}

// lasting reports whether a further attempt would not help: the request was refused, not lost.
func lasting(err error) bool {
	switch code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.ResourceExhausted,
		codes.Unimplemented, codes.OutOfRange:
		return true
	}
	return errors.Is(err, ocsctl.ErrVersion) || errors.Is(err, journal.ErrCorrupt)
}

// code returns the gRPC code of an error of the etcd client.
func code(err error) codes.Code {
	var coded interface{ Code() codes.Code }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return status.Code(err)
}
