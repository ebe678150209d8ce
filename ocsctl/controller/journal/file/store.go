// Package file keeps the journal of a controller in one file of its host: a bbolt database, which commits
// with fsync. It survives kills, power cuts and restarts; it needs no server.
//
// The controller that has the file open is in charge: the kernel keeps a lock on it and gives the lock
// away when the process ends, however it ends. A second controller on the same host and directory stands
// by until then. A controller that hangs keeps the lock: for a takeover from it, and for controllers on
// several hosts, there is package etcd.
//
// Layer: ocsctl, below package lead. It must not be linked into the library that ranks load.
package file

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// Config says where the store is. Name and Dir are required; zero values of the rest stand for defaults.
type Config struct {
	Name     string // of this controller, for operators and other controllers
	Software string // version of this program
	Address  string // where ranks and operators reach this controller
	Dir      string // made where it is missing; only this user may read it

	History int // events that are kept; 0: journal.DefaultHistory
	Queue   int // events that wait to be written; 0: 8192

	Logger *slog.Logger // nil: nothing is logged
	// OnWrite is called after every commit, from any goroutine, and must not block.
	OnWrite func(took time.Duration, err error)
}

const (
	defaultQueue = 8192
	// lockPoll is how long one attempt at the lock takes; a standby makes one after the other.
	lockPoll = 200 * time.Millisecond
)

// Buckets and keys of the database.
var (
	metaBucket    = []byte("meta")
	planesBucket  = []byte("planes")
	historyBucket = []byte("history") // key: number of the event, big endian
	formatKey     = []byte("format")
	tokenKey      = []byte("token") // of the newest rule, big endian
)

// Store is a journal.Store in a file. Its methods may be called from any goroutine.
type Store struct {
	conf Config

	mu     sync.Mutex
	db     *bbolt.DB      // nil while this store does not have the lock
	rule   *rule          // nil while this controller is not in charge
	leader journal.Leader // as last seen
	closed bool
}

var _ journal.Store = (*Store)(nil)

// ErrClosed reports a call after Close.
var ErrClosed = errors.New("journal: closed")

// Open opens the store, or finds that another controller of this host has it. A file that this program
// cannot read is an error.
func Open(conf Config) (*Store, error) {
	switch {
	case conf.Name == "":
		return nil, errors.New("journal: name: a controller needs one")
	case conf.Dir == "":
		return nil, errors.New("journal: dir: missing")
	}
	conf.History = cmp.Or(conf.History, journal.DefaultHistory)
	conf.Queue = cmp.Or(conf.Queue, defaultQueue)
	if conf.Logger == nil {
		conf.Logger = slog.New(slog.DiscardHandler)
	}
	if conf.OnWrite == nil {
		conf.OnWrite = func(time.Duration, error) {}
	}
	if err := os.MkdirAll(conf.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: dir: %w", err)
	}
	s := &Store{conf: conf}
	db, err := s.open()
	if err == nil {
		err = syncDir(conf.Dir) // the file may be a new one
	}
	if err != nil && !errors.Is(err, errLocked) {
		return nil, err
	}
	s.db = db
	return s, nil
}

// Path is the file of the store.
func (s *Store) Path() string { return filepath.Join(s.conf.Dir, "journal.db") }

// errLocked: another controller has the file.
var errLocked = errors.New("another controller of this host has the journal")

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err == nil {
		defer dir.Close()
		err = dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("journal: dir: %w", err)
	}
	return nil
}

// open opens the database, for as long as lockPoll, and checks that it is whole and that this program can
// read it.
func (s *Store) open() (db *bbolt.DB, err error) {
	defer s.survive(&db, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if db, err = bbolt.Open(s.Path(), 0o600, &bbolt.Options{Timeout: lockPoll}); err == nil {
		if err = db.View(whole); err == nil {
			err = db.Update(s.prepare)
		}
	}
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		s.sawLeader()
		return nil, errLocked
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum):
		err = fmt.Errorf("%w: %w", err, journal.ErrCorrupt)
	}
	return db, err
}

// survive makes an error of a panic: bbolt panics where pages of the file are no pages, and the kernel
// where the file is shorter than it was. It closes the database after an error.
func (s *Store) survive(db **bbolt.DB, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%v: %w", p, journal.ErrCorrupt)
	}
	if *err == nil || errors.Is(*err, errLocked) {
		return
	}
	*err = fmt.Errorf("journal: %s: %w", s.Path(), *err)
	if *db != nil {
		_ = (*db).Close() // nothing was written
		*db = nil
	}
}

// whole reads everything in a database, so that a page that is none shows before the controller rules. bbolt's
// own check runs on a goroutine of its own, whose panics end the process.
func whole(tx *bbolt.Tx) error {
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if len(k) == 0 || v == nil {
				return fmt.Errorf("an entry without a key or a value: %w", journal.ErrCorrupt)
			}
			return nil
		})
	})
}

// prepare makes the buckets of a fresh database, and checks the format of one that was written before.
func (s *Store) prepare(tx *bbolt.Tx) error {
	for _, name := range [][]byte{metaBucket, planesBucket, historyBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(metaBucket)
	if format := meta.Get(formatKey); format != nil {
		return journal.DecodeFormat("format", format, s.conf.Software)
	}
	format, err := journal.Encode(journal.FormatValue{Version: journal.Format, Software: s.conf.Software})
	if err != nil {
		return err
	}
	return meta.Put(formatKey, format)
}

// Campaign implements [journal.Store]: it waits for the lock. The token of the rule is durable before it
// returns.
func (s *Store) Campaign(ctx context.Context) (journal.Leadership, error) {
	for {
		r, err := s.attempt()
		if !errors.Is(err, errLocked) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("journal: campaign: %w", ctx.Err())
		case <-time.After(lockPoll / 4):
		}
	}
}

// attempt leads if no other controller does, and is errLocked otherwise.
func (s *Store) attempt() (journal.Leadership, error) {
	s.mu.Lock()
	db, rules, closed := s.db, s.rule != nil, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case rules:
		return nil, errLocked // by an earlier rule of this store
	}
	if db == nil {
		var err error
		if db, err = s.open(); err != nil {
			return nil, err
		}
	}
	r, err := s.begin(db)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.closed {
		err = ErrClosed
	}
	if err != nil {
		s.db = nil
		return nil, errors.Join(err, db.Close())
	}
	s.db, s.rule = db, r
	s.leader = journal.Leader{Name: s.conf.Name, Address: s.conf.Address, Software: s.conf.Software, Token: r.token}
	s.writeLeader(s.leader)
	r.ended.Go(r.run)
	return r, nil
}

// begin takes the next token, and reads what rules before have left.
func (s *Store) begin(db *bbolt.DB) (*rule, error) {
	r := newRule(s, db)
	err := db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if b := meta.Get(tokenKey); len(b) == 8 {
			r.token = binary.BigEndian.Uint64(b)
		}
		r.token++
		if err := meta.Put(tokenKey, number(r.token)); err != nil {
			return err
		}
		if k, _ := tx.Bucket(historyBucket).Cursor().Last(); len(k) == 8 {
			r.last = binary.BigEndian.Uint64(k)
		}
		return tx.Bucket(planesBucket).ForEach(func(k, v []byte) error {
			r.loaded[string(k)] = append([]byte(nil), v...)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("journal: %s: %w", s.Path(), err)
	}
	r.seq.StartAfter(r.last)
	return r, nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// Leader implements [journal.Store].
func (s *Store) Leader() journal.Leader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader
}

// leaderPath is where the controller in charge says who it is, for those that stand by. Nothing depends
// on it.
func (s *Store) leaderPath() string { return filepath.Join(s.conf.Dir, "leader.json") }

func (s *Store) writeLeader(l journal.Leader) {
	text, err := json.Marshal(l)
	if err == nil {
		fresh := s.leaderPath() + ".new"
		if err = os.WriteFile(fresh, text, 0o600); err == nil {
			err = os.Rename(fresh, s.leaderPath())
		}
	}
	if err != nil {
		s.conf.Logger.Warn("standbys are not told who is in charge", "error", err)
	}
}

// sawLeader reads who has the lock.
func (s *Store) sawLeader() {
	l := journal.Leader{Name: "unknown"}
	if text, err := os.ReadFile(s.leaderPath()); err == nil {
		_ = json.Unmarshal(text, &l) // it may be in the middle of changing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = l
}

// History implements [controller.History]. While another controller has the file, it is the one to ask.
func (s *Store) History(_ context.Context, q controller.Query) ([]controller.Event, error) {
	s.mu.Lock()
	db, leader := s.db, s.leader
	s.mu.Unlock()
	if db == nil {
		return nil, fmt.Errorf("journal: %s has the history: %w", cmp.Or(leader.Name, "another controller"), controller.ErrNotLeader)
	}
	var found []controller.Event
	err := db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(historyBucket).Cursor()
		k, v := c.Last()
		if q.Before > 0 {
			if k, _ = c.Seek(number(q.Before)); k == nil {
				k, v = c.Last()
			} else {
				k, v = c.Prev()
			}
		}
		for limit := journal.Limit(q); k != nil && len(found) < limit; k, v = c.Prev() {
			var e controller.Event
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("history %x: %w: %w", k, err, journal.ErrCorrupt)
			}
			if !q.Since.IsZero() && e.Time.Before(q.Since) && len(q.Kinds) == 0 && q.Plane == controller.AnyPlane {
				break // events are in the order of time
			}
			if q.Match(&e) {
				found = append(found, e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: %s: %w", s.Path(), err)
	}
	return found, nil
}

// release gives the lock away.
func (s *Store) release(r *rule) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rule != r {
		return nil
	}
	db := s.db
	s.rule, s.db, s.leader = nil, nil, journal.Leader{}
	if err := db.Close(); err != nil {
		return fmt.Errorf("journal: %s: %w", s.Path(), err)
	}
	return nil
}

// Close lets go of the file. What a rule has not written is lost, as in a crash.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	r, db := s.rule, s.db
	s.mu.Unlock()
	if r != nil {
		r.lose(fmt.Errorf("journal: closed: %w", controller.ErrNotLeader))
		r.ended.Wait()
		return s.release(r)
	}
	if db == nil {
		return nil
	}
	s.mu.Lock()
	s.db = nil
	s.mu.Unlock()
	return db.Close()
}
