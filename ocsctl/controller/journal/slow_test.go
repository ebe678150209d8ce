package journal

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlow: a journal that is slow, or fails, has one line until it is well again.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := Slow{Log: slog.New(slog.NewTextHandler(&out, nil))}
		write := func(took time.Duration, err error) {
			end := s.Begin()
			time.Sleep(took)
			synctest.Wait()
			end(err)
		}
		says := func(words ...string) {
			t.Helper()
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(lines) != len(words) {
				t.Fatalf("%d lines, want %d: %s", len(lines), len(words), out.String())
			}
			for i, w := range words {
				if !strings.Contains(lines[i], w) {
					t.Errorf("line %d is %q, want %q", i, lines[i], w)
				}
			}
		}
		write(time.Millisecond, nil)
		if out.Len() > 0 {
			t.Fatal(out.String())
		}
		end := s.Begin()
		time.Sleep(time.Hour)
		synctest.Wait()
		says("WARN msg=\"the journal does not answer") // while it does not
		end(nil)
		write(time.Minute, nil)
		write(0, errors.New("no space left"))
		says("WARN")
		write(time.Millisecond, nil)
		write(time.Millisecond, nil)
		says("WARN", "INFO msg=\"the journal answers in time again")
		write(0, errors.New("no space left"))
		says("WARN", "INFO", "no space left")
	})
}
