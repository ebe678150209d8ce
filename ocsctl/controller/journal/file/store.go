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
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"lightpath/internal/files"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// Config says where the store is. Name and Dir are required; zero values of the rest stand for defaults.
type Config struct {
	Name     string // of this controller, for operators and other controllers
	Software string // version of this program
	Address  string // where ranks and operators reach this controller
	Dir      string // created if missing, with access for this user only

	History int // how many events to keep; 0: journal.DefaultHistory
	Queue   int // most events that wait for a write; 0: 8192

	Logger *slog.Logger // nil: nothing is logged
	// OnWrite is called after every commit, from any goroutine, and must not block.
	OnWrite func(took time.Duration, err error)
}

const (
	defaultQueue = 8192
	// lockPoll is how long one attempt to lock the file lasts; a standby repeats it.
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
	leader journal.Leader // the last known one
	closed bool
}

var _ journal.Store = (*Store)(nil)

// ErrClosed reports a call after Close.
var ErrClosed = errors.New("journal: closed")

// Open opens the store. If another controller of this host has it, Open succeeds too, and Campaign waits. A file that
// this program cannot read is an error.
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

// Path returns the path of the store's file.
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

// open opens the database and checks that it is whole and that this program can read it. It waits lockPoll for the
// lock, then returns errLocked.
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

// survive turns a panic into an error, and closes the database after an error. bbolt panics if a page of the file is
// corrupt; reading a truncated file is a memory fault.
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

// whole reads the entire database, to find a corrupt page before the controller rules. bbolt's own check would run in
// another goroutine, where a panic ends the process.
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

// prepare creates the buckets of a new database, and checks the format of an existing one.
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

// Campaign implements [journal.Store]. It waits for the lock. The token of the rule is durable when it returns.
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

// attempt starts a rule if no other controller rules; otherwise it returns errLocked.
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
	s.leader = journal.Leader{Name: s.conf.Name, Address: s.conf.Address, Software: s.conf.Software, Token: r.Token()}
	s.writeLeader(s.leader)
	r.ended.Go(r.run)
	return r, nil
}

// begin stores the next token, and reads the planes' states of earlier rules.
func (s *Store) begin(db *bbolt.DB) (*rule, error) {
	r := &rule{s: s, db: db, done: make(chan struct{}), slow: journal.Slow{Log: s.conf.Logger}}
	by := journal.Author{Name: s.conf.Name}
	var last uint64
	stored := make(map[string][]byte)
	err := db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if b := meta.Get(tokenKey); len(b) == 8 {
			by.Token = binary.BigEndian.Uint64(b)
		}
		by.Token++
		if err := meta.Put(tokenKey, number(by.Token)); err != nil {
			return err
		}
		if k, _ := tx.Bucket(historyBucket).Cursor().Last(); len(k) == 8 {
			last = binary.BigEndian.Uint64(k)
		}
		return tx.Bucket(planesBucket).ForEach(func(k, v []byte) error {
			stored[s.Path()+": "+string(k)] = slices.Clone(v)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("journal: %s: %w", s.Path(), err)
	}
	r.Pending = journal.NewPending(by, s.conf.Queue, last, stored, r.Err)
	r.Events = r.Planes
	return r, nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// Leader implements [journal.Store].
func (s *Store) Leader() journal.Leader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader
}

// leaderPath returns the path of a file that names the controller that rules. It is for the log of standbys only.
func (s *Store) leaderPath() string { return filepath.Join(s.conf.Dir, "leader.json") }

func (s *Store) writeLeader(l journal.Leader) {
	text, err := json.Marshal(l)
	if err == nil {
		err = files.Write(s.leaderPath(), text, 0o600)
	}
	if err != nil {
		s.conf.Logger.Warn("standbys are not told who is in charge", "error", err)
	}
}

// sawLeader reads the name of the controller that has the lock.
func (s *Store) sawLeader() {
	l := journal.Leader{Name: "unknown"}
	if text, err := os.ReadFile(s.leaderPath()); err == nil {
		_ = json.Unmarshal(text, &l) // an unreadable file leaves the name unknown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = l
}

// History implements [controller.History]. It returns an error while another controller has the file.
func (s *Store) History(ctx context.Context, q controller.Query) ([]controller.Event, error) {
	s.mu.Lock()
	db, leader := s.db, s.leader
	s.mu.Unlock()
	if db == nil {
		name := cmp.Or(leader.Name, "another controller")
		return nil, fmt.Errorf("journal: %s has the history: %w", name, controller.ErrNotLeader)
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
			if err := ctx.Err(); err != nil {
				return err
			}
			var e controller.Event
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("history %x: %w: %w", k, err, journal.ErrCorrupt)
			}
			if !q.Since.IsZero() && e.Time.Before(q.Since) && len(q.Kinds) == 0 && q.Plane == controller.AnyPlane {
				break // older events cannot match, since events are in order of time
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

// release closes the file after rule r, which releases the lock.
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

// Close closes the file. Changes that a rule has not written are lost, as in a crash.
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
