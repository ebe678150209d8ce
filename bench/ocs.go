package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lightpath/plans/fabric"
)

// OCS is an emulated optical switch in a process of its own (`lightpath ocsd`).
type OCS struct {
	cmd    *exec.Cmd
	exited chan error
	stderr Tail
}

// ocsStart bounds how long the switch may take to listen.
const ocsStart = 10 * time.Second

// StartOCS starts lightpath (the path of the command) as the switch that the ocsd
// configuration file describes, and returns when it listens on socket.
func StartOCS(ctx context.Context, lightpath, config, socket string) (*OCS, error) {
	o := &OCS{cmd: exec.Command(lightpath, "ocsd", "--config", config), exited: make(chan error, 1)}
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	o.cmd.Stderr = &o.stderr
	if err := o.cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: cannot start the switch: %w", err)
	}
	go func() { o.exited <- o.cmd.Wait() }()
	for deadline := time.Now().Add(ocsStart); time.Now().Before(deadline); {
		if listening(socket) {
			return o, nil
		}
		select {
		case err := <-o.exited:
			if err == nil {
				err = ErrEnded
			}
			return nil, fmt.Errorf("bench: the switch ended: %w: %s", err, strings.TrimSpace(o.stderr.String()))
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), o.Stop())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil, errors.Join(fmt.Errorf("bench: the switch does not listen on %s", socket), o.Stop())
}

// Stop ends the switch in good order: its frame log is complete afterwards.
func (o *OCS) Stop() error {
	if err := o.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-o.exited:
		if err != nil {
			return fmt.Errorf("bench: the switch: %w %s", err, o.stderr.String())
		}
		return nil
	case <-time.After(ocsStart):
		return errors.Join(errors.New("bench: the switch does not stop"), o.cmd.Process.Kill())
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

// EnsureOCS starts the emulated switches of a fabric that nobody serves yet; stop ends
// them. Fabrics without emulated switches, or whose switch runs, need nothing.
func EnsureOCS(ctx context.Context, fabricPath, lightpath string) (stop func(), err error) {
	f, err := fabric.Load(fabricPath)
	if err != nil {
		return nil, err
	}
	var started []*OCS
	stop = func() {
		for _, o := range started {
			_ = o.Stop() // nothing depends on it any more
		}
	}
	for _, sw := range f.OCS {
		if sw.Driver != fabric.DriverEmulator || listening(sw.Endpoint) {
			continue
		}
		o, err := startFor(ctx, fabricPath, sw.Endpoint, lightpath)
		if err != nil {
			stop()
			return nil, err
		}
		started = append(started, o)
	}
	return stop, nil
}

// startFor starts the switch of a fabric file with an ocsd configuration made up for it.
func startFor(ctx context.Context, fabricPath, endpoint, lightpath string) (*OCS, error) {
	abs, err := filepath.Abs(fabricPath)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lightpath-ocsd-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // read by the time StartOCS returns
	config := filepath.Join(dir, "ocsd.yaml")
	file := fabric.OCSD{Version: fabric.Version, Fabric: abs, Socket: strings.TrimPrefix(endpoint, "unix:")}
	if err := os.WriteFile(config, file.Encode(), 0o600); err != nil {
		return nil, err
	}
	return StartOCS(ctx, lightpath, config, endpoint)
}
