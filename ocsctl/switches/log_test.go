package switches

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/internal/await"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
)

// ledger is a slog.Handler that keeps what is logged, without times.
type ledger struct {
	mu    *sync.Mutex
	lines *[]string
	attrs string
}

func newLedger() *ledger { return &ledger{mu: &sync.Mutex{}, lines: new([]string)} }

func (l *ledger) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *ledger) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprintf("%v %s%s", r.Level, r.Message, l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.lines = append(*l.lines, line)
	return nil
}

func (l *ledger) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *l
	for _, a := range attrs {
		with.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &with
}

func (l *ledger) WithGroup(string) slog.Handler { return l }

// count returns how many lines have all words.
func (l *ledger) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range *l.lines {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}

// TestLog: what changes with a switch and its circuits is logged once, with plane, switch, rank and port,
// whatever is read meanwhile.
func TestLog(t *testing.T) { synctest.Test(t, testLog) }

func testLog(t *testing.T) {
	log := newLedger()
	r := newRig(t, "polatis-scpi", 2, func(c *Config) {
		c.Logger, c.Misses, c.LookTimeout = slog.New(log), 2, 500*time.Millisecond
	})
	looks := func(n int32) { // so many more looks
		t.Helper()
		for until := r.spy.looked.Load() + n; r.spy.looked.Load() < until; {
			time.Sleep(time.Millisecond)
		}
	}
	once := func(n int, words ...string) {
		t.Helper()
		r.until(func() bool { return log.count(words...) >= n })
		looks(3)
		if got := log.count(words...); got != n {
			t.Errorf("%d lines with %q, want %d: %q", got, words, n, *log.lines)
		}
	}
	once(1, "INFO", "switch answers", "switch=sw", "verifies=light")
	r.must(1, shift(1))
	r.inject(device.Fault{Kind: device.LostLight, In: -1, Out: ranks + 2})
	once(1, "WARN", "light is lost", "switch=sw", "plane=b", "rank=1", "port=15", "-60.00 dBm from rank 1")
	r.inject(device.Fault{Kind: device.Clear})
	once(1, "INFO", "no more: light is lost", "plane=b", "rank=1", "port=15")
	r.inject(device.Fault{Kind: device.GhostConnect, In: 0, Out: ranks + 1})
	once(1, "WARN", "switch reports an invalid map", "switch=sw", "planes=[a b]")
	r.inject(device.Fault{Kind: device.Clear})
	once(1, "INFO", "switch answers again", "switch=sw", "planes=[a b]")
	r.inject(device.Fault{Kind: device.Reboot, Delay: 2 * time.Second})
	r.until(func() bool { return log.count("WARN", "switch does not answer", "switch=sw", "planes=[a b]") == 1 })
	once(2, "INFO", "switch answers again")
	once(1, "WARN", "switch does not answer")
}

// TestLateIdentity: operators get to know a switch that has not told its model at first.
func TestLateIdentity(t *testing.T) {
	log := newLedger()
	r := &rig{T: t, spy: &spy{}}
	r.start(Config{
		Planes: fakePlanes(1), DriftInterval: time.Millisecond, Logger: slog.New(log),
		Open: func(context.Context, string, driver.Ports) (driver.Switch, error) {
			f := newFake(ranks)
			f.secret = 2
			return f, nil
		},
	})
	await.Until(t, "the model", func() bool { return r.dev.Switches()[0].Info.Model == "fake" })
	await.Until(t, "its line", func() bool { return log.count("switch answers", "model=fake") == 1 })
}

// TestLogOfTooFewPorts: a switch that has fewer ports than the fabric file says is told from one that does
// not answer.
func TestLogOfTooFewPorts(t *testing.T) {
	log := newLedger()
	newRig(t, "polatis-scpi", 2, func(c *Config) {
		open := c.Open
		c.Logger = slog.New(log)
		c.Open = func(ctx context.Context, name string, ports driver.Ports) (driver.Switch, error) {
			ports.In, ports.Out = append([]string{"17"}, ports.In...), append([]string{"33"}, ports.Out...)
			sw, err := open(ctx, name, ports)
			if err != nil && !errors.Is(err, driver.ErrPorts) {
				t.Errorf("%v is not %v", err, driver.ErrPorts)
			}
			return sw, err
		}
	})
	if n := log.count("WARN", "switch does not have the ports of the fabric file", "switch=sw", "17", "1..8"); n != 1 {
		t.Errorf("%d lines: %q", n, *log.lines)
	}
}
