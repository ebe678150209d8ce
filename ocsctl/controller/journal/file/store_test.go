package file

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/plans/circuit"
)

func open(t *testing.T, c Config) *Store {
	t.Helper()
	if c.Name == "" {
		c.Name = "a"
	}
	s, err := Open(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	journaltest.Run(t, func(t *testing.T, keep int) journal.Store {
		return open(t, Config{Dir: t.TempDir(), History: keep})
	})
}

// TestHistoryEndsInTime: a query ends with its context. A controller that takes over waits no longer for the history,
// and a reader of the page leaves its place to the next one.
func TestHistoryEndsInTime(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	l := journaltest.Lead(t, s)
	require.NoError(t, journaltest.Record(t, l, controller.Event{Kind: controller.Attached, Plane: -1, Port: 1}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := s.History(ctx, controller.AllEvents()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", found, err)
	}
	journaltest.Resign(t, l)
}

// crash returns what is in the directory of a store at this moment, as a power cut would leave it.
func crash(t *testing.T, s *Store) (dir string) {
	t.Helper()
	dir = t.TempDir()
	from, err := os.Open(s.Path())
	require.NoError(t, err)
	defer from.Close()
	to, err := os.Create(filepath.Join(dir, "journal.db"))
	if err == nil {
		if _, err = io.Copy(to, from); err == nil {
			err = to.Close()
		}
	}
	require.NoError(t, err)
	return dir
}

// TestDroppedEvent: the journal answers a dropped event only after it has stored the Lost event in its place.
// Without that, a takeover would not know of the rank that attached.
func TestDroppedEvent(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Queue: 4})
	r := journaltest.Lead(t, s).(*rule)
	block, err := r.db.Begin(true) // commits wait for it
	require.NoError(t, err)
	for range 2*s.conf.Queue + 1 { // the blocked commit has taken some of them
		r.Record(controller.Event{Time: time.Now(), Kind: controller.Detached, Plane: -1}, nil)
	}
	answer := make(chan error, 1)
	attached := controller.Event{Time: time.Now(), Kind: controller.Attached, Plane: -1}
	r.Record(attached, func(err error) { answer <- err })
	require.NoError(t, block.Rollback())
	require.NoError(t, <-answer)
	events, err := s.History(t.Context(), controller.AllEvents())
	if err != nil || len(events) == 0 || events[0].Kind != controller.Lost {
		t.Fatalf("the journal answered before it stored the Lost event: %+v, %v", events, err)
	}
}

// TestDiskIsFull: an order that the disk has refused is in the journal when the disk has space again, without another
// change.
func TestDiskIsFull(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	r := journaltest.Lead(t, s).(*rule)
	r.db.MaxSize = 1
	off := controller.Event{Time: time.Now(), Kind: controller.Commanded, Port: -1, Err: strings.Repeat("disabled", 1<<14)}
	if err := journaltest.Record(t, r, off); !errors.Is(err, bolterrors.ErrMaxSizeReached) {
		t.Fatal(err)
	}
	require.NoError(t, r.db.Update(func(*bbolt.Tx) error { r.db.MaxSize = 0; return nil })) // commits wait for it
	await.Until(t, "the plane is in the journal", func() bool {
		stored := 0
		require.NoError(t, r.db.View(func(tx *bbolt.Tx) error {
			stored = len(tx.Bucket(planesBucket).Get([]byte(journal.PlaneKey(0))))
			return nil
		}))
		return stored > len(off.Err)
	})
}

// TestCrash: acknowledged writes survive a crash at any later time.
func TestCrash(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	l := journaltest.Lead(t, s)
	to := circuit.Shift(journaltest.Ports, 1)
	require.NoError(t, journaltest.Intend(t, l, controller.Intent{Plane: 1, Epoch: 3, To: to}))
	require.NoError(t, journaltest.Record(t, l, controller.Event{Time: time.Now(), Kind: controller.Commanded, Plane: 0,
		Port: -1, Err: "disabled by ann"}))
	again := open(t, Config{Dir: crash(t, s)})
	next, err := again.Campaign(t.Context())
	require.NoError(t, err)
	defer journaltest.Resign(t, next)
	at, err := next.Recovered(journaltest.Ports, journaltest.Planes)
	require.NoError(t, err)
	if next.Token() <= l.Token() || next.LastSeq() != 1 || at[0].Disabled != "disabled by ann" || at[1].Intent == nil ||
		!at[1].Intent.To.Equal(to) {
		t.Errorf("token %d after %d, event %d, %+v", next.Token(), l.Token(), next.LastSeq(), at)
	}
}

// TestStandby: a second controller of the host stands by, names the first one, and takes over.
func TestStandby(t *testing.T) {
	dir := t.TempDir()
	first := open(t, Config{Name: "first", Address: "127.0.0.1:7443", Dir: dir})
	l := journaltest.Lead(t, first)
	second := open(t, Config{Name: "second", Dir: dir})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := second.Campaign(ctx)
		ended <- err
	}()
	await.Until(t, "the second knows the first", func() bool { return second.Leader().Name != "" })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("two controllers rule: %v", err)
	}
	if got := second.Leader(); got.Name != "first" || got.Address != "127.0.0.1:7443" || got.Token != l.Token() {
		t.Errorf("in charge: %+v", got)
	}
	if _, err := second.History(t.Context(), controller.AllEvents()); !errors.Is(err, controller.ErrNotLeader) ||
		!strings.Contains(err.Error(), "first") {
		t.Errorf("history of a standby: %v", err)
	}
	require.NoError(t, first.Close()) // as in a crash: it does not resign
	next := journaltest.Lead(t, second)
	defer journaltest.Resign(t, next)
	if next.Token() <= l.Token() || second.Leader().Name != "second" {
		t.Errorf("token %d after %d, in charge: %+v", next.Token(), l.Token(), second.Leader())
	}
}

// TestRefused: a file that this program cannot read is one clear line with its name.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		kind  error
	}{
		"garbage": {func(t *testing.T, path string) {
			write(t, path, []byte(strings.Repeat("junk", 8192)))
		}, journal.ErrCorrupt},
		"cut":   {func(t *testing.T, path string) { truncate(t, path) }, journal.ErrCorrupt},
		"pages": {spoilPages, journal.ErrCorrupt},
		"later": {func(t *testing.T, path string) {
			put(t, path, metaBucket, "format", `{"version":9,"software":"7.0"}`)
		}, ocsctl.ErrVersion},
		"bad plane": {func(t *testing.T, path string) {
			put(t, path, planesBucket, "planes/001", `{"version":1}`)
		}, journal.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Config{Dir: dir})
			l := journaltest.Lead(t, s)
			require.NoError(t, journaltest.Intend(t, l, controller.Intent{Plane: 1,
				To: circuit.Shift(journaltest.Ports, 1)}))
			journaltest.Resign(t, l)
			c.spoil(t, s.Path())
			err := recoverFrom(t, dir)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), s.Path()) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %v", err, c.kind)
			}
		})
	}
	for _, c := range []Config{{Name: "a"}, {Dir: t.TempDir()}, {Name: "a", Dir: "/dev/null/journal"}} {
		if _, err := Open(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// recoverFrom opens a store and reads what is in it.
func recoverFrom(t *testing.T, dir string) error {
	s, err := Open(Config{Name: "a", Dir: dir})
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // nothing is written
	l, err := s.Campaign(t.Context())
	if err == nil {
		_, err = l.Recovered(journaltest.Ports, journaltest.Planes)
	}
	return err
}

func write(t *testing.T, path string, data []byte) {
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func truncate(t *testing.T, path string) {
	require.NoError(t, os.Truncate(path, 3*4096))
}

// spoilPages overwrites all pages but the two that say where the others are.
func spoilPages(t *testing.T, path string) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := 2 * os.Getpagesize(); i < len(data); i++ {
		data[i] = byte(i*7 + 1)
	}
	write(t, path, data)
}

func put(t *testing.T, path string, bucket []byte, key, value string) {
	db, err := bbolt.Open(path, 0o600, nil)
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put([]byte(key), []byte(value)) })
	}
	if err == nil {
		err = db.Close()
	}
	require.NoError(t, err)
}

// BenchmarkIntend is how long a reconfiguration waits for the disk.
func BenchmarkIntend(b *testing.B) {
	s, err := Open(Config{Name: "a", Dir: b.TempDir()})
	require.NoError(b, err)
	defer s.Close() //nolint:errcheck // nothing is left to write
	l, err := s.Campaign(b.Context())
	require.NoError(b, err)
	if _, err := l.Recovered(journaltest.Ports, journaltest.Planes); err != nil {
		b.Fatal(err)
	}
	answer := make(chan error, 1)
	for i := range b.N {
		l.Intend(controller.Intent{Epoch: uint32(i), To: circuit.Shift(journaltest.Ports, i)}, func(err error) {
			answer <- err
		})
		require.NoError(b, <-answer)
	}
}
