package log

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func TestLogFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.%h.%p")
	var times Timestamps
	if err := errors.Join(times.SetFormat("[%F %T] "), times.SetLevels("WARN")); err != nil {
		t.Fatal(err)
	}
	l := New(&Options{Level: Info, File: path, Subsystems: "INIT", Times: times}, 3)
	l.Info(Init, "shown %d", 1)
	l.Info(Tuning, "not shown")
	l.Warn("careful")
	l.Close()
	text, err := os.ReadFile(ExpandPath(path, l.Host, l.PID))
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^\S+:\d+:\d+ \[3\] NCCL INFO shown 1\n` +
		`\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \S+:\d+:\d+ \[3\] NCCL WARN careful\n$`)
	if !want.Match(text) {
		t.Errorf("%s", text)
	}
	var quiet *Logger
	quiet.Warn("nothing")
	var b bytes.Buffer
	(&Logger{out: &b, level: Warn, subs: All}).Info(Init, "nothing")
	if b.Len() != 0 {
		t.Errorf("%s", b.String())
	}
}

// TestNotice checks that a notice is a warning, and that it appears once where warnings do not.
func TestNotice(t *testing.T) {
	var out, quiet bytes.Buffer
	standardError = &quiet
	t.Cleanup(func() { standardError = os.Stderr })
	for range 2 {
		(&Logger{out: &out, level: Warn, subs: All}).Notice("plane %s", "p0")
		(&Logger{out: &out, Host: "h", PID: 5, device: 3}).Notice("plane %s", "p0")
		(*Logger)(nil).Notice("plane %s", "p1")
	}
	if n := bytes.Count(out.Bytes(), []byte("NCCL WARN plane p0\n")); n != 2 {
		t.Errorf("%d warnings: %s", n, &out)
	}
	if quiet.String() != "h:5 [3] NCCL WARN plane p0\n" {
		t.Errorf("standard error: %q", quiet.String())
	}
}

// TestTimestamps compares with the output of date, if date has the conversion.
func TestTimestamps(t *testing.T) {
	at := time.Date(2026, 3, 7, 9, 5, 1, 123456789, time.UTC)
	for format, want := range map[string]string{
		"[%F %T] ": "[2026-03-07 09:05:01] ", "%H:%M:%S.%3f": "09:05:01.123", "%9f|%1f": "123456789|1", "%%Y": "%Y",
		"%j %e %s": "066  7 1772874301", "": "",
	} {
		if got, err := strftime(format, at); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", format, got, err, want)
		}
	}
	var times Timestamps
	if err := errors.Join(times.SetFormat("%s "), times.SetLevels("^INFO,trace")); err != nil {
		t.Fatal(err)
	}
	for level, want := range map[Level]string{Warn: "1772874301 ", Version: "1772874301 ", Info: "", Trace: ""} {
		if got := times.prefix(level, at); got != want {
			t.Errorf("level %d: %q, want %q", level, got, want)
		}
	}
}
