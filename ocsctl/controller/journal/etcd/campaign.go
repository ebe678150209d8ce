package etcd

import (
	"context"
	"fmt"
	"time"

	mvcc "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"lightpath/internal/clock"
	"lightpath/ocsctl/controller/journal"
)

// Campaign implements [journal.Store]. It watches the leader key until the key is free, and also reads it once per
// lease time in case the watch misses the change.
func (c *Client) Campaign(ctx context.Context) (journal.Leadership, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.closing, cancel)()
	for said := ""; ; {
		news := c.news()
		l, at, err := c.attempt(ctx)
		switch {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("etcd: campaign: %w", ctx.Err())
		case err != nil && lasting(err):
			return nil, err
		case err != nil:
			if err.Error() != said {
				said = err.Error()
				c.conf.Logger.Warn("no leadership yet", "error", err)
			}
			_ = clock.Sleep(ctx, retryPause*4)
		default:
			c.waitVacant(ctx, at, news)
		}
	}
}

// attempt starts a rule if no controller rules. Otherwise it returns the revision of its read of the leader key.
func (c *Client) attempt(ctx context.Context) (*leadership, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.conf.Lease)
	defer cancel()
	format, err := c.format(ctx)
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.etcd.Get(ctx, c.key(leaderKey))
	if err != nil {
		return nil, 0, fmt.Errorf("etcd: %s: %w", c.key(leaderKey), err)
	}
	if len(resp.Kvs) > 0 {
		if gone, err := c.bury(ctx, resp.Kvs[0]); !gone || err != nil {
			return nil, resp.Header.Revision, err
		}
	}
	c.leader.Store(new(journal.Leader))
	asked := c.clock()
	lease, err := c.etcd.Grant(ctx, int64((c.conf.Lease+time.Second-1)/time.Second))
	if err != nil {
		return nil, 0, fmt.Errorf("etcd: lease: %w", err)
	}
	l, at, err := c.take(ctx, lease, format)
	if err != nil || l == nil {
		c.revoke(lease.ID)
		return nil, at, err
	}
	return l.begin(asked), at, nil
}

// take writes the leader key. If another controller was faster, it returns a nil leadership and the revision.
func (c *Client) take(
	ctx context.Context, lease *clientv3.LeaseGrantResponse, format stored,
) (*leadership, int64, error) {
	me := c.newLeaderValue()
	value, err := journal.Encode(me)
	if err != nil {
		return nil, 0, err
	}
	puts := []clientv3.Op{clientv3.OpPut(c.key(leaderKey), string(value), clientv3.WithLease(lease.ID))}
	if format.mod == 0 {
		f, err := journal.Encode(journal.FormatValue{Version: journal.Format, Software: c.conf.Software})
		if err != nil {
			return nil, 0, err
		}
		puts = append(puts, clientv3.OpPut(c.key(formatKey), string(f)))
	}
	resp, err := c.etcd.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(c.key(leaderKey)), "=", 0),
		clientv3.Compare(clientv3.ModRevision(c.key(formatKey)), "=", format.mod),
	).Then(puts...).Commit()
	if err != nil {
		return nil, 0, fmt.Errorf("etcd: %s: %w", c.key(leaderKey), err)
	}
	if !resp.Succeeded {
		return nil, resp.Header.Revision, nil
	}
	l := &leadership{
		c: c, me: me, token: uint64(resp.Header.Revision), lease: lease.ID,
		ttl: time.Duration(lease.TTL) * time.Second, done: make(chan struct{}), slow: journal.Slow{Log: c.conf.Logger},
	}
	if err := l.load(ctx); err != nil {
		return nil, 0, err
	}
	return l, 0, nil
}

// news returns a channel that is closed when this client starts to serve the store. It is nil if the client serves it
// already, or never will.
func (c *Client) news() <-chan struct{} {
	if c.host == nil {
		return nil
	}
	select {
	case <-c.host.serving:
		return nil
	default:
		return c.host.serving
	}
}

// bury deletes the leader key of a leader that is known to have ended, so that its lease need not expire first.
func (c *Client) bury(ctx context.Context, leader *mvcc.KeyValue) (gone bool, err error) {
	v := c.sawLeader(leader)
	if c.host == nil || !c.host.ended(v.Instance) {
		return false, nil
	}
	key := c.key(leaderKey)
	same := clientv3.Compare(clientv3.CreateRevision(key), "=", leader.CreateRevision)
	resp, err := c.etcd.Txn(ctx).If(same).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return false, fmt.Errorf("etcd: %s: %w", key, err)
	}
	return resp.Succeeded, nil
}

// waitVacant returns when the leader key is deleted or news is closed, at the latest after the lease time.
func (c *Client) waitVacant(ctx context.Context, after int64, news <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, c.conf.Lease)
	defer cancel()
	if news != nil {
		go func() {
			select {
			case <-news:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	for resp := range c.etcd.Watch(clientv3.WithRequireLeader(ctx), c.key(leaderKey), clientv3.WithRev(after+1)) {
		if resp.Err() != nil {
			_ = clock.Sleep(ctx, retryPause)
			return
		}
		for _, e := range resp.Events {
			if e.Type == clientv3.EventTypeDelete {
				return
			}
			c.sawLeader(e.Kv)
		}
	}
}

// sawLeader stores and returns the current leader. If its value cannot be read, the name is "unknown".
func (c *Client) sawLeader(kv *mvcc.KeyValue) leaderValue {
	var v leaderValue
	if journal.Decode(c.key(leaderKey), kv.Value, &v) != nil {
		v = leaderValue{Name: "unknown"}
	}
	c.leader.Store(&journal.Leader{
		Name: v.Name, Software: v.Software, Address: v.Address, Token: uint64(kv.CreateRevision),
	})
	return v
}

// revoke ends a lease that no rule uses. If that fails, the lease expires.
func (c *Client) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(c.closing, time.Second)
	defer cancel()
	_, _ = c.etcd.Revoke(ctx, id)
}
