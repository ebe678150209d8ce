package etcd

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller/journal/journaltest"
)

// TestLog: warnings of etcd reach our log, with what they are about; the rest does not.
func TestLog(t *testing.T) {
	var text bytes.Buffer
	l := quiet(slog.New(slog.NewTextHandler(&text, nil)), new(atomic.Bool),
		zapcore.WriteThenPanic).With(zap.String("member", "m1"))
	l.Info("all is well")
	l.Warn("26849429b98958f4 cannot campaign at term 1 since " + applying)
	l.Warn("slow disk", zap.Int("ms", 700))
	l.Error("no disk", zap.Error(errors.New("gone")))
	for _, want := range []string{`level=WARN msg="slow disk"`, "ms=700", "member=m1", "component=etcd",
		`level=ERROR msg="no disk"`, "error=gone"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in %s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "well") || strings.Contains(text.String(), "campaign") {
		t.Error(text.String())
	}
}

// slow matches etcd's warnings of a slow machine, which are true.
var slow = regexp.MustCompile(`took too long|slow fdatasync|overloaded|request stats`)

// TestQuietStart: nothing is logged while all is well.
func TestQuietStart(t *testing.T) {
	var text bytes.Buffer
	c := open(t, t.TempDir(), func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&text, nil)) })
	journaltest.Resign(t, lead(t, c))
	_ = c.Close()
	for line := range strings.Lines(text.String()) {
		if !slow.MatchString(line) {
			t.Error(line)
		}
	}
}

// TestUnusableStore: a standby whose turn it is to serve a broken store tries on, and logs why once.
func TestUnusableStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600)) // not a directory
	first, err := os.Create(path)
	require.NoError(t, err)
	if locked, err := tryLock(first); !locked || err != nil {
		t.Fatal(locked, err)
	}
	var said refusals
	h, err := serve(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&said, nil))}, "me")
	require.NoError(t, err)
	first.Close()
	for range 3 { // attempts
		await.Until(t, "an attempt", func() bool { id, _ := os.ReadFile(path); return string(id) == "me" })
		require.NoError(t, os.Truncate(path, 0))
	}
	h.close()
	if n := said.Load(); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// refusals counts the lines of a log about a store that cannot be served.
type refusals struct{ atomic.Int32 }

func (r *refusals) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("the journal cannot be served")) {
		r.Add(1)
	}
	return len(line), nil
}
