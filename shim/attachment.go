package shim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/local"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/emulator"
)

// ocsClient is a port's connection to whoever moves the planes, wherever that is.
type ocsClient interface {
	ocsctl.Client
	// Waiting says what the next switch of a plane waits for; it may ask, and take a while.
	Waiting(plane int) string
	NumPorts() int
	Planes() []ocsctl.PlaneInfo
	// DataPlane is one of the ocsctl.Data constants.
	DataPlane() string
}

// attachment is this process's place at a controller, for one port. The communicators that use
// the port share it: tickets see to it that one does at a time.
type attachment struct {
	ocsClient
	rings *rings // nil where the planes are not in the controller's memory
	key   attachKey
	refs  int

	mu     sync.Mutex
	wakers map[*optical]func()
}

// rings are the ends of planes in a controller's memory.
type rings struct {
	ports []emulator.PortMemory
	mtu   int
}

type attachKey struct {
	controller string // its endpoints
	port       int
}

var attachments struct {
	sync.Mutex
	open map[attachKey]*attachment
}

// attachPort returns the attachment of a port, to be given back by detach. A controller that ends
// is given up when none has taken over from it for so long.
func attachPort(fab *fabricInfo, port int, takeover time.Duration) (*attachment, error) {
	key := attachKey{strings.Join(fab.endpoints, " "), port}
	attachments.Lock()
	defer attachments.Unlock()
	a := attachments.open[key]
	if a == nil {
		var err error
		if a, err = dialController(fab, port, takeover); err != nil {
			return nil, err
		}
		a.key = key
		if a.rings == nil { // else the rings' bell rings
			a.OnChange(a.changed)
		}
		if attachments.open == nil {
			attachments.open = map[attachKey]*attachment{}
		}
		attachments.open[key] = a
	}
	a.refs++
	return a, nil
}

func (a *attachment) detach() {
	attachments.Lock()
	defer attachments.Unlock()
	if a.refs--; a.refs == 0 {
		delete(attachments.open, a.key)
		_ = a.Close() // always nil
	}
}

// onChange has wake called when the controller has news, until it is nil.
func (a *attachment) onChange(o *optical, wake func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if wake == nil {
		delete(a.wakers, o)
		return
	}
	if a.wakers == nil {
		a.wakers = map[*optical]func(){}
	}
	a.wakers[o] = wake
}

func (a *attachment) changed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, wake := range a.wakers {
		wake()
	}
}

// dialController attaches to a controller: one on this host if there is one.
func dialController(fab *fabricInfo, port int, takeover time.Duration) (*attachment, error) {
	var failed error
	for _, e := range fab.endpoints {
		if socket, local := strings.CutPrefix(e, "unix:"); local {
			a, err := dialLocal(socket, port)
			if err == nil || !errors.Is(err, ocsctl.ErrControlLost) {
				return a, err
			}
			failed = errors.Join(failed, err)
		}
	}
	if remote := fab.remote(); len(remote) > 0 {
		tls := fab.Controller.TLS
		c, err := rpc.Dial(context.Background(), remote, port, rpc.Options{CA: tls.CA, Cert: tls.Cert, Key: tls.Key, Version: Version, Takeover: takeover})
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		return &attachment{ocsClient: c}, nil
	}
	return nil, failed
}

// dialLocal attaches to a controller on this host.
func dialLocal(socket string, port int) (*attachment, error) {
	l, err := local.Dial(socket, port, local.DialOptions{Version: Version})
	if err != nil {
		return nil, err
	}
	if l.DataPlane() != ocsctl.DataMemory {
		return &attachment{ocsClient: l}, nil
	}
	c, err := emulator.Attach(l)
	if err != nil {
		_ = l.Close() // always nil
		return nil, err
	}
	return &attachment{ocsClient: c, rings: &rings{ports: c.Ports(), mtu: c.MTU()}}, nil
}
