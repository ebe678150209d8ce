package ocsd

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/cli/fabrictest"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
	"lightpath/shim"
)

// ocsdConfig names the configuration of a controller that this program is to be, instead of a test.
const ocsdConfig = "LIGHTPATH_TEST_OCSD"

// TestAsOCSD is no test: it is the controller of those below, in a process of its own that can be killed.
func TestAsOCSD(t *testing.T) {
	config := os.Getenv(ocsdConfig)
	if config == "" {
		t.Skip("run by other tests only")
	}
	os.Exit(cli.Run(context.Background(), lightpath(), []string{"ocsd", "--config", config}))
}

// ocsd is a controller in a process of its own.
type ocsd struct {
	*testing.T
	config, address string
	process         *exec.Cmd
	log             string // file
	operator        *rpc.Operator
}

// newOCSD starts a controller with a configuration, which listens on an address of this host.
func newOCSD(t *testing.T, config string) *ocsd {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := &ocsd{T: t, config: config, address: l.Addr().String(), log: filepath.Join(t.TempDir(), "log")}
	l.Close()
	f, err := os.OpenFile(config, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(f, "listen: %s\n", o.address)
		f.Close()
	}
	require.NoError(t, err)
	if o.operator, err = rpc.DialOperator([]string{o.address}, rpc.Options{Version: shim.Version}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.operator.Close() //nolint:errcheck // the test is over
		if o.process != nil {
			o.kill()
		}
	})
	o.start()
	return o
}

func (o *ocsd) start() {
	o.Helper()
	o.process = exec.Command(os.Args[0], "-test.run=^TestAsOCSD$")
	o.process.Env = append(os.Environ(), ocsdConfig+"="+o.config, "STATE_DIRECTORY=")
	log, err := os.OpenFile(o.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(o, err)
	defer log.Close()
	o.process.Stderr = log
	require.NoError(o, o.process.Start())
	await.Success(o.T, "the controller rules", func() error {
		_, err := o.operator.Status(o.Context())
		if err != nil {
			err = fmt.Errorf("%w: %s", err, clitest.Content(o.T, o.log))
		}
		return err
	})
}

// kill ends the controller as a crash does.
func (o *ocsd) kill() {
	_ = o.process.Process.Kill()
	_ = o.process.Wait()
	o.process = nil
}

func (o *ocsd) crash() {
	o.Helper()
	o.kill()
	o.start()
}

// plane returns the controller's status of a plane.
func (o *ocsd) plane(name string) controller.PlaneSnapshot {
	o.Helper()
	s, err := o.operator.Status(o.Context())
	require.NoError(o, err)
	for _, p := range s.Planes {
		if p.Name == name {
			return p
		}
	}
	o.Fatalf("no plane %s", name)
	return controller.PlaneSnapshot{}
}

// ocs runs a command of an operator that has to succeed.
func (o *ocsd) ocs(args ...string) string {
	o.Helper()
	return lightpath.Succeed(o.T, "", append(append([]string{"ocs"}, args...), "--controller", o.address)...)
}

// TestPackagedConfigOutlivesACrash: what an operator has disabled and set is so after the controller that
// packages install was killed and started again.
func TestPackagedConfigOutlivesACrash(t *testing.T) {
	dir, err := os.MkdirTemp("", "lightpath") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"fabric.yaml", "ocsd.yaml"} {
		text := clitest.Content(t, filepath.Join("..", "..", "..", "packaging", "etc", name))
		text = strings.NewReplacer("/run/lightpath", dir, "/var/lib/lightpath", dir).Replace(text)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	o := newOCSD(t, filepath.Join(dir, "ocsd.yaml"))
	o.ocs("set", "--plane", "p1", "--map", "ring:1")
	o.ocs("disable", "--plane", "p0", "--reason", "a fibre is in my hand")
	for range 2 {
		o.crash()
		if p := o.plane("p0"); p.State != controller.Down || !strings.Contains(p.Reason, "a fibre is in my hand") {
			t.Fatalf("the disabled plane is %s: %s", p.State, p.Reason)
		}
		if p := o.plane("p1"); p.State != controller.Resident || !p.Map.Equal(circuit.Shift(8, 1)) {
			t.Fatalf("the plane that was set is %s at %v: %s", p.State, p.Map, p.Reason)
		}
	}
	o.ocs("enable", "--plane", "p0")
	o.crash()
	if p := o.plane("p0"); p.State != controller.Resident {
		t.Errorf("the enabled plane is %s: %s", p.State, p.Reason)
	}
	if out := o.ocs("history"); !strings.Contains(out, "a fibre is in my hand") {
		t.Errorf("the history has no word of it: %s", out)
	}
}

// TestDriftOutlivesACrash restarts a controller of real switches, whose file names no journal. It must find the change
// that another writer made to a switch meanwhile, and a circuit that has lost its light.
func TestDriftOutlivesACrash(t *testing.T) {
	model, fabric := fabrictest.Switch(t)
	// one form for all
	text := strings.NewReplacer("5/13", "5", "6/14", "6", "7/15", "7", "8/16", "8").Replace(clitest.Content(t, fabric))
	require.NoError(t, os.WriteFile(fabric, []byte(text), 0o600))
	config := filepath.Join(filepath.Dir(fabric), "ocsd.yaml")
	require.NoError(t, os.WriteFile(config, []byte("version: 1\nfabric: fabric.yaml\nswitches: {drift_interval: 50ms}\n"),
		0o600))
	o := newOCSD(t, config)
	for _, plane := range []string{"p0", "p1"} {
		if out := o.ocs("set", "--plane", plane, "--map", "ring:1"); !strings.Contains(out, "verified by light") {
			t.Error(out)
		}
	}
	o.kill()
	for _, f := range []device.Fault{{Kind: device.ThirdParty, In: 1, Out: -1}, {Kind: device.LostLight, In: -1, Out: 6}} {
		require.NoError(t, model.Inject(f))
	}
	o.start()
	if p := o.plane("p0"); p.State != controller.Down || !strings.Contains(p.Reason, "drift") ||
		!p.Desired.Equal(circuit.Shift(4, 1)) {
		t.Errorf("%s: %s; desired %v", p.State, p.Reason, p.Desired)
	}
	if p := o.plane("p1"); p.State != controller.Resident || p.Out == nil || !strings.Contains(p.Out[0].Why, "circuit") {
		t.Errorf("%s: %+v", p.State, p.Out)
	}
	log := clitest.Content(t, o.log)
	for _, want := range []string{"no light", "plane=p1", "switch=sw", "in charge"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in %s", want, log)
		}
	}
}
