package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"lightpath/plans/fabric"
)

// OCS is the controller of an emulated optical switch in a process of its own (`lightpath ocsd`).
type OCS struct {
	*Child
	exited chan error
}

// ocsStart bounds how long the switch may take to listen, and to stop.
const ocsStart = 10 * time.Second

// StartOCS starts the switch of an ocsd configuration file. lightpath is the path of the command. StartOCS returns
// when the switch listens on socket.
func StartOCS(ctx context.Context, lightpath, config, socket string) (*OCS, error) {
	// The switch outlives ctx, so that Stop can end it in good order.
	o := &OCS{Child: NewChild(context.WithoutCancel(ctx), lightpath, "ocsd", "--config", config),
		exited: make(chan error, 1)}
	o.SysProcAttr.Pdeathsig = syscall.SIGTERM
	if err := o.Start(); err != nil {
		return nil, fmt.Errorf("bench: cannot start the switch: %w", err)
	}
	go func() { o.exited <- o.Wait() }()
	for deadline := time.Now().Add(ocsStart); time.Now().Before(deadline); {
		if listening(socket) {
			return o, nil
		}
		select {
		case err := <-o.exited:
			return nil, fmt.Errorf("bench: the switch ended: %w", o.Explain(err))
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), o.Stop())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil, errors.Join(fmt.Errorf("bench: the switch does not listen on %s", socket), o.Stop())
}

// Stop ends the switch and waits for its end. The frame log is then complete.
func (o *OCS) Stop() error {
	if err := o.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-o.exited:
		if err != nil {
			return fmt.Errorf("bench: the switch: %w", o.Explain(err))
		}
		return nil
	case <-time.After(ocsStart):
		return errors.Join(errors.New("bench: the switch does not stop"), o.Process.Kill())
	}
}

func listening(socket string) bool {
	c, err := net.Dial("unix", strings.TrimPrefix(socket, "unix:"))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// EnsureOCS starts the controller of a fabric's emulated switches, unless a process serves them already; stop ends it.
// It starts nothing for real switches, and for a controller that ranks reach over the network only.
func EnsureOCS(ctx context.Context, fabricPath, lightpath string) (stop func(), err error) {
	f, err := fabric.Load(fabricPath)
	if err != nil {
		return nil, err
	}
	socket, endpoints := "", f.Endpoints()
	if i := slices.IndexFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, "unix:") }); i >= 0 {
		socket = endpoints[i]
	}
	emulated := f.Optical() && f.Switch(0).Driver == fabric.DriverEmulator
	if !emulated || socket == "" && endpoints != nil || listening(socket) {
		return func() {}, nil
	}
	o, err := startFor(ctx, fabricPath, socket, lightpath)
	if err != nil {
		return nil, err
	}
	return func() { _ = o.Stop() }, nil // no process depends on it any more
}

// startFor starts the switch of a fabric file with an ocsd configuration that it writes.
func startFor(ctx context.Context, fabricPath, socket, lightpath string) (*OCS, error) {
	abs, err := filepath.Abs(fabricPath)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lightpath-ocsd-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the switch has read it when StartOCS returns
	config := filepath.Join(dir, "ocsd.yaml")
	file := fabric.OCSD{Version: fabric.Version, Fabric: abs}
	if err := os.WriteFile(config, file.Encode(), 0o600); err != nil {
		return nil, err
	}
	return StartOCS(ctx, lightpath, config, socket)
}
