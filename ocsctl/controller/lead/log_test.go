package lead_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal/file"
	"lightpath/ocsctl/controller/lead"
	"lightpath/plans/circuit"
)

// book is where a controller logs.
type book struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *book) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// has waits until a line has all words, and returns how many lines have them.
func (b *book) has(t *testing.T, words ...string) (lines int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		for line := range strings.Lines(b.text()) {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				lines++
			}
		}
		if lines > 0 || time.Now().After(deadline) {
			if lines == 0 {
				t.Errorf("no line with %q in\n%s", words, b.text())
			}
			return lines
		}
	}
}

// TestLog: the log of two controllers says which of them is in charge, where planes are, when one goes out of
// service and is back, and what operators order: each once.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	d := &device{at: circuit.Shift(ports, 1)}
	var books [2]book
	var runners [2]*lead.Runner
	var stops [2]func() error
	for i, name := range []string{"first", "second"} {
		s, err := file.Open(file.Config{Name: name, Dir: dir, Address: name + ":7443"})
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() }) //nolint:errcheck // nothing is left to write
		runners[i], stops[i] = run(t, s, d, func(o *lead.Options) {
			o.Name, o.Address = name, name+":7443" // so that it knows its own rule
			o.Logger = slog.New(slog.NewTextHandler(&books[i], nil))
		})
		if i == 0 {
			books[0].has(t, "INFO", "in charge", "token=1")
		}
	}
	books[0].has(t, "INFO", "plane is in service", "plane=p", "taken as found")
	books[1].has(t, "INFO", "standing by", `"in charge"=first`, "address=first:7443", "token=1")
	core, _ := runners[0].Controller()
	require.NoError(t, core.Disable(0, "fibre work", "ann"))
	books[0].has(t, "WARN", "plane was disabled", "plane=p", "disabled by ann: fibre work")
	require.NoError(t, core.Set(0, circuit.Shift(ports, 2), "ann"))
	books[0].has(t, "INFO", "plane was set", "plane=p", "by=ann")
	require.NoError(t, stops[0]())
	books[0].has(t, "INFO", "ends as asked")
	books[1].has(t, "INFO", "in charge", "token=2")
	books[1].has(t, "WARN", "plane is out of service", "plane=p", "disabled by ann: fibre work")
	await.Until(t, "the second controller has a core", func() bool { return rules(runners[1]) })
	core, _ = runners[1].Controller()
	d.set(func() { d.at = circuit.Shift(ports, 3) })
	if err := core.Enable(0, "bob"); err == nil {
		t.Error("enabled a plane that has drifted")
	}
	d.set(func() { d.at = circuit.Shift(ports, 2) })
	require.NoError(t, core.Enable(0, "bob"))
	books[1].has(t, "INFO", "plane was enabled", "plane=p", "by=bob")
	if n := books[1].has(t, "standing by"); n != 1 {
		t.Errorf("%d lines say for which controller it stands by", n)
	}
}

// fencedDevice obeys controllers with token 2 and higher.
type fencedDevice struct {
	device
	token atomic.Uint64
}

// Report implements [controller.Reporter].
func (d *fencedDevice) Report(int) (string, error) {
	if d.token.Load() < 2 {
		return "", controller.ErrNotLeader
	}
	return "light", nil
}

// TestFencedLog: the log of a controller that is fenced at its start does not say that planes are in service.
func TestFencedLog(t *testing.T) {
	d, b := &fencedDevice{device: device{at: circuit.Shift(ports, 1)}}, &book{}
	s, err := file.Open(file.Config{Name: "first", Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // nothing is left to write
	run(t, s, d, func(o *lead.Options) {
		build := o.Build
		o.Build = func(c controller.Config) (*controller.Core, error) { d.token.Store(c.Token); return build(c) }
		o.Logger = slog.New(slog.NewTextHandler(b, nil))
	})
	b.has(t, "WARN", "not in charge any more", "token=1")
	b.has(t, "INFO", "plane is in service", "token=2")
	if strings.Contains(b.text(), `"in charge" token=1`) || strings.Count(b.text(), "in service") != 1 {
		t.Error(b.text())
	}
}
