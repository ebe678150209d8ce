package netconf_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf"
	"lightpath/plans/circuit"
)

// netconfd starts Debian's NETCONF server with the module, and returns what opens a stream to
// it: the process that its SSH subsystem would be.
func netconfd(t *testing.T) netconf.Dial {
	t.Helper()
	var paths []string
	for _, name := range []string{"netconfd", "netconf-subsystem"} {
		path, err := exec.LookPath(name)
		if err != nil {
			path = filepath.Join("/usr/sbin", name)
		}
		if _, err := os.Stat(path); err != nil {
			t.Skipf("%s is not installed (Debian package netconfd)", name)
		}
		paths = append(paths, path)
	}
	modules, err := filepath.Abs("testdata")
	require.NoError(t, err)
	// A socket's path has to be short, whatever the test's name.
	dir, err := os.MkdirTemp("", "ncx")
	require.NoError(t, err)
	socket := filepath.Join(dir, "s")
	var output bytes.Buffer
	daemon := exec.Command(paths[0], "--modpath="+modules+":/usr/share/yuma/modules", "--module=optical-switch",
		"--no-startup", "--target=candidate", "--superuser=lightpath", "--ncxserver-sockname="+socket)
	daemon.Dir, daemon.Stdout, daemon.Stderr = dir, &output, &output
	daemon.Env = append(os.Environ(), "HOME="+dir)
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Kill() // it may have ended
		_ = daemon.Wait()
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("netconfd: %s", output.Bytes())
		}
	})
	await.Success(t, "netconfd listens", func() error {
		c, err := net.Dial("unix", socket) // the file exists before netconfd listens
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	return func(context.Context) (io.ReadWriteCloser, error) {
		c := exec.Command(paths[1], "--ncxserver-sockname=830@"+socket)
		c.Env = append(os.Environ(), "SSH_CONNECTION=127.0.0.1 4000 127.0.0.1 830", "USER=lightpath")
		return start(c)
	}
}

// process is a stream to a process.
type process struct {
	io.ReadCloser
	in io.WriteCloser
	c  *exec.Cmd
	// cut, if set, ends the process when the server answers a message with this text: the server has executed
	// it, and the client never gets the answer.
	cut     func([]byte) bool
	cutting atomic.Bool
}

func start(c *exec.Cmd) (*process, error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{ReadCloser: out, in: in, c: c}, c.Start()
}

// Write implements io.Writer.
func (p *process) Write(b []byte) (int, error) {
	if p.cut != nil && p.cut(b) {
		p.cutting.Store(true)
	}
	return p.in.Write(b)
}

// Read implements io.Reader.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if p.cutting.Load() && len(bytes.TrimSpace(b[:n])) > 0 {
		p.Close() //nolint:errcheck // the answer is meant to be lost
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// Close ends the process.
func (p *process) Close() error {
	_ = p.c.Process.Kill() // it may have ended
	return errors.Join(p.in.Close(), p.ReadCloser.Close())
}

func target(ports int) driver.Target {
	return driver.Target{Endpoint: "netconfd", Ports: labels(ports, ports), Timeout: 30 * time.Second,
		Tolerance: driver.Tolerance{Settle: 30 * time.Second}}
}

func change(t *testing.T, sw driver.Switch, to circuit.Permutation) ([]driver.Circuit, error) {
	t.Helper()
	before, err := sw.Read(context.Background())
	require.NoError(t, err)
	return sw.Apply(context.Background(), driver.Change{Before: before, After: to, Want: driver.Status})
}

func read(t *testing.T, sw driver.Switch, want circuit.Permutation) {
	t.Helper()
	if got, err := sw.Read(context.Background()); err != nil || !got.Equal(want) {
		t.Fatalf("reads %v, %v; want %v", got, err, want)
	}
}

// TestNetconfd drives a NETCONF server that others have written.
func TestNetconfd(t *testing.T) {
	dial := netconfd(t)
	ctx := context.Background()
	open := func(d netconf.Dial) driver.Switch {
		t.Helper()
		sw, err := netconf.OpenStream(ctx, target(16), d)
		require.NoError(t, err)
		t.Cleanup(func() { sw.Close() }) //nolint:errcheck // it returns nil
		return sw
	}
	sw := open(dial)
	if info, err := sw.Info(ctx); err != nil || info.Dialect != "optical-switch@2018-03-22" || info.CanFence {
		t.Fatalf("%+v, %v", info, err)
	}
	read(t, sw, circuit.AllDark(16))
	mixed := circuit.Shift(16, 3).Clone()
	mixed[2], mixed[3], mixed[7] = mixed[3], mixed[2], circuit.Dark
	for _, to := range []circuit.Permutation{circuit.Shift(16, 3), mixed, circuit.Shift(16, 3), circuit.Xor(16, 5),
		circuit.AllDark(16), circuit.Shift(16, 1)} {
		report, err := change(t, sw, to)
		if err != nil {
			t.Fatalf("to %v: %v", to, err)
		}
		for _, v := range report {
			if v.Observed != v.Intended || !v.Accepted || v.Verified != driver.ReadBack {
				t.Errorf("%+v: netconfd knows no states, so read-back is what can be had", v)
			}
		}
		read(t, open(dial), to)
	}
	t.Run("drift", func(t *testing.T) {
		other := open(dial)
		if _, err := change(t, other, circuit.Shift(16, 2)); err != nil {
			t.Fatal(err)
		}
		_, err := sw.Apply(ctx, driver.Change{Before: circuit.Shift(16, 1), After: circuit.Shift(16, 4)})
		if !errors.Is(err, driver.ErrDrift) {
			t.Fatalf("somebody else has written: %v", err)
		}
		read(t, sw, circuit.Shift(16, 2))
	})
	t.Run("lost answers", func(t *testing.T) {
		to := circuit.Shift(16, 5)
		for _, at := range []string{"<edit-config", "<confirmed/>", "<persist-id>", "<unlock", "<lock", "<get"} {
			var once atomic.Bool
			cutting := open(func(ctx context.Context) (io.ReadWriteCloser, error) {
				s, err := dial(ctx)
				if err == nil {
					s.(*process).cut = func(b []byte) bool {
						return bytes.Contains(b, []byte(at)) && once.CompareAndSwap(false, true)
					}
				}
				return s, err
			})
			_, err := change(t, cutting, to)
			if !once.Load() {
				t.Errorf("%s was never sent", at)
			}
			// Before the commit nothing has happened, and the change is refused; after it, it stands.
			if before := at == "<edit-config"; before != (err != nil) {
				t.Errorf("cut after %s: %v", at, err)
			} else if before {
				if _, err = change(t, cutting, to); err != nil {
					t.Errorf("again after %s: %v", at, err)
				}
			}
			read(t, sw, to)
			to = circuit.Shift(16, len(at))
			if _, err := change(t, sw, to); err != nil {
				t.Fatalf("after %s: %v", at, err)
			}
			to = circuit.Shift(16, len(at)+1)
		}
	})
	t.Run("concurrent", func(t *testing.T) {
		before, err := sw.Read(ctx)
		require.NoError(t, err)
		errs := make(chan error, 4)
		for i := range 4 {
			w := open(dial)
			go func() {
				after := circuit.Xor(16, i+1)
				_, err := w.Apply(ctx, driver.Change{Before: before, After: after})
				errs <- err
			}()
		}
		made := 0
		for range 4 {
			switch err := <-errs; {
			case err == nil:
				made++
			case !errors.Is(err, driver.ErrDrift):
				t.Errorf("%v", err)
			}
		}
		if made != 1 {
			t.Errorf("%d of four changes from one map were made", made)
		}
	})
}
