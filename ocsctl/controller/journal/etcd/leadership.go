package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"lightpath/internal/clock"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// leadership is one rule of this controller; see [journal.Leadership].
//
// Its clock starts before it asks for a renewal, the server's when it grants the renewal; and the rule ends one part
// (see renewals) early. So when the lease expires on the server, this controller has stopped, and its last command to
// a switch has arrived.
type leadership struct {
	*journal.Pending
	c     *Client
	me    leaderValue
	token uint64
	lease clientv3.LeaseID
	ttl   time.Duration

	until atomic.Int64 // end of the rule, on the client's clock
	once  sync.Once
	why   error // set before done is closed
	done  chan struct{}
	ctx   context.Context // ends with the rule
	end   context.CancelFunc

	slow      journal.Slow
	revision  atomic.Int64 // of the newest write
	compacted int64        // revisions below it are deleted

	versions map[string]int64 // revision of each plane's value, by key; of writePlanes
	segments []uint64         // number of the first event of each stored segment; of writeEvents
}

var _ journal.Leadership = (*leadership)(nil)

// renewals is the number of parts of a lease. The rule renews the lease after each part, and ends one part early.
const renewals = 5

// compactEvery is how many revisions an embedded store collects before it deletes the old ones. etcd's own compaction
// runs every five minutes; thousands of moves per second on large planes fill its quota before.
const compactEvery = 1000

// begin starts the rule. asked is the time before the request of its lease.
func (l *leadership) begin(asked time.Duration) *leadership {
	l.extend(asked)
	l.ctx, l.end = context.WithCancel(context.Background())
	l.c.leader.Store(&journal.Leader{Name: l.me.Name, Software: l.me.Software, Address: l.me.Address, Token: l.token})
	l.c.rules.Go(func() { l.keep(asked) })
	l.c.rules.Go(l.write)
	return l
}

func (l *leadership) Done() <-chan struct{} { return l.done }

func (l *leadership) Err() error {
	select {
	case <-l.done:
		return l.why
	default:
	}
	if l.c.clock() >= time.Duration(l.until.Load()) {
		l.lose(fmt.Errorf("etcd: the lease of %s has not been renewed in time: %w", l.me.Name, controller.ErrNotLeader))
		return l.why
	}
	return nil
}

func (l *leadership) extend(asked time.Duration) {
	l.until.Store(int64(asked + l.ttl - l.ttl/renewals))
}

// lose ends the rule; the first reason counts.
func (l *leadership) lose(why error) {
	l.once.Do(func() {
		l.why = why
		close(l.done)
		l.end()
		if now := l.c.leader.Load(); now.Token == l.token {
			l.c.leader.CompareAndSwap(now, new(journal.Leader))
		}
	})
	<-l.done
}

// keep renews the lease, which was asked for at a time, until the rule ends. It also checks the clock often enough to
// close done in time.
func (l *leadership) keep(asked time.Duration) {
	part := l.ttl / renewals
	told := false
	for next := asked + part - l.c.clock(); ; next = part { // not after a part from now: a slow disk delays the answer
		select {
		case <-l.done:
			return
		case <-l.c.closing.Done():
			l.lose(fmt.Errorf("etcd: closed: %w", controller.ErrNotLeader))
			return
		case <-time.After(next):
		}
		for {
			err := l.renew()
			if l.Err() != nil {
				return
			}
			if err == nil {
				told = false
				l.compact()
				break
			}
			if !told {
				told = true
				l.c.conf.Logger.Warn("the lease is not renewed yet", "error", err)
			}
			_ = clock.Sleep(l.ctx, part/4)
		}
	}
}

// renew asks for one renewal, and waits for the answer until the rule ends.
func (l *leadership) renew() error {
	asked := l.c.clock()
	ctx, cancel := context.WithTimeout(l.ctx, time.Duration(l.until.Load())-asked)
	defer cancel()
	defer context.AfterFunc(l.c.closing, cancel)()
	// Not clientv3's KeepAliveOnce, which retries without a pause.
	stream, err := pb.NewLeaseClient(l.c.etcd.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.lease)}); err != nil {
		return err
	}
	resp, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case resp.TTL <= 0:
		l.lose(fmt.Errorf("etcd: the lease of %s has run out: %w", l.me.Name, controller.ErrNotLeader))
	case l.Err() == nil:
		l.extend(asked)
	}
	return nil
}

// compact deletes old revisions of an embedded store.
func (l *leadership) compact() {
	now := l.revision.Load()
	if len(l.c.conf.Endpoints) > 0 || now-l.compacted < compactEvery {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.ttl/renewals)
	defer cancel()
	if _, err := l.c.etcd.Compact(ctx, now); err != nil && l.Err() == nil && !errors.Is(err, rpctypes.ErrCompacted) {
		l.c.conf.Logger.Warn("old revisions of the journal stay for now", "error", err)
		return
	}
	l.compacted = now
}

// Resign ends the rule and lets the next controller start at once.
func (l *leadership) Resign(ctx context.Context) error {
	if l.Err() == nil {
		l.Flush(ctx)
	}
	l.lose(fmt.Errorf("etcd: %s has resigned: %w", l.me.Name, controller.ErrNotLeader))
	if _, err := l.c.etcd.Revoke(ctx, l.lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("etcd: lease: %w", err)
	}
	return nil
}

// put is a value to write in place of a known version.
type put struct {
	key, value string
	mod        int64 // revision of the known version; 0: the key does not exist
}

// commit writes all puts and executes the deletes of sweep, in one transaction. The transaction fails unless this rule
// lasts and every key has its known version. After a lost answer, commit sends the same transaction again until the
// outcome is known, so an old value never replaces a newer one. It returns the revision of the values. An error that
// wraps controller.ErrNotLeader has ended the rule; after any other, nothing was written.
func (l *leadership) commit(puts []put, sweep ...clientv3.Op) (at int64, err error) {
	end := l.slow.Begin()
	defer func() { end(err) }()
	leader := l.c.key(leaderKey)
	ifs := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(leader), "=", int64(l.token))}
	then, otherwise := sweep, []clientv3.Op{clientv3.OpGet(leader)}
	for _, p := range puts {
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(p.key), "=", p.mod))
		then = append(then, clientv3.OpPut(p.key, p.value))
		otherwise = append(otherwise, clientv3.OpGet(p.key))
	}
	for {
		if err := l.Err(); err != nil {
			return 0, err
		}
		began := time.Now()
		// The server may have ended; the next attempt then finds another.
		ctx, cancel := context.WithTimeout(l.ctx, l.ttl/renewals)
		resp, err := l.c.etcd.Txn(ctx).If(ifs...).Then(then...).Else(otherwise...).Commit()
		cancel()
		l.c.conf.OnWrite(time.Since(began), err)
		switch {
		case err == nil && resp.Succeeded:
			l.revision.Store(resp.Header.Revision)
			return resp.Header.Revision, l.Err()
		case err == nil:
			return l.settle(puts, resp)
		case l.Err() != nil:
			return 0, l.Err()
		case lasting(err):
			return 0, fmt.Errorf("etcd: %s: %w", puts[0].key, err)
		}
		l.c.conf.Logger.Debug("a write has not been answered", "key", puts[0].key, "error", err)
		_ = clock.Sleep(l.ctx, retryPause)
	}
}

// settle finds out why a transaction failed: another controller rules, or an earlier attempt whose answer was lost has
// written the values.
func (l *leadership) settle(puts []put, resp *clientv3.TxnResponse) (int64, error) {
	leader := resp.Responses[0].GetResponseRange().Kvs
	switch {
	case len(leader) == 0:
		l.lose(fmt.Errorf("etcd: the lease of %s has run out: %w", l.me.Name, controller.ErrNotLeader))
		return 0, l.why
	case uint64(leader[0].CreateRevision) != l.token:
		l.c.sawLeader(leader[0])
		now := l.c.Leader()
		l.lose(fmt.Errorf("etcd: %s with token %d has taken over from %s with token %d: %w",
			now.Name, now.Token, l.me.Name, l.token, controller.ErrNotLeader))
		return 0, l.why
	}
	var at int64
	for i, p := range puts {
		kvs := resp.Responses[i+1].GetResponseRange().Kvs
		if len(kvs) == 0 || string(kvs[0].Value) != p.value || at != 0 && kvs[0].ModRevision != at {
			l.lose(fmt.Errorf("etcd: %s was changed by something that is not a controller: %w", p.key, controller.ErrNotLeader))
			return 0, l.why
		}
		at = kvs[0].ModRevision
	}
	return at, l.Err()
}
