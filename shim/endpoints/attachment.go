package endpoints

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/port"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/local"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/emulator"
	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
	"lightpath/shim/topology"
)

// Client is a port's connection to the controller that moves the planes.
type Client interface {
	ocsctl.Client
	// Waiting asks the controller what the next switch of a plane waits for. It returns an error after some seconds
	// without an answer.
	Waiting(plane int) (string, error)
	NumPorts() int
	Planes() []ocsctl.PlaneInfo
	// DataPlane is one of the ocsctl.Data constants.
	DataPlane() string
}

// Controller is this process's connection to a controller, for one port. The communicators that use the port share it.
// Tickets ensure that they use it one at a time.
type Controller struct {
	Client
	rings *rings // nil if the planes are not in the controller's memory
	Key   controllerKey
	probe probe

	mu     sync.Mutex
	wakers map[any]func()
	wanted map[uint64]func(planes uint64) // by holder
}

// rings are the ends of planes in a controller's memory.
type rings struct {
	ports []emulator.PortMemory
	mtu   int
}

type controllerKey struct {
	Controller string // its endpoints
	Port       int
}

// attachment is a port's connection.
type attachment struct {
	users   int           // that have the connection or wait for it; guarded by attachments
	dialing chan struct{} // has a value while a user dials
	at      *Controller   // guarded by dialing; nil: not connected
}

var attachments struct {
	sync.Mutex
	open map[controllerKey]*attachment
}

// AttachPort returns the connection for a port. The caller calls [Controller.Detach]. If the communicator fails
// meanwhile, AttachPort ends. It waits for no controller of other communicators.
func AttachPort(c *comm.Core, fab *Fabric, port int) (*Controller, error) {
	key := controllerKey{strings.Join(fab.endpoints, " "), port}
	attachments.Lock()
	if attachments.open == nil {
		attachments.open = map[controllerKey]*attachment{}
	}
	a := attachments.open[key]
	if a == nil {
		a = &attachment{dialing: make(chan struct{}, 1)}
		attachments.open[key] = a
	}
	a.users++
	attachments.Unlock()
	at, err := a.connect(c, fab, key)
	if err != nil {
		leaveAttachment(key)
	}
	return at, err
}

// connect returns the connection, which the first user makes.
func (a *attachment) connect(c *comm.Core, fab *Fabric, key controllerKey) (*Controller, error) {
	ctx, cancel := connecting(c)
	defer cancel()
	select {
	case a.dialing <- struct{}{}:
		defer func() { <-a.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("the controller at %s has not answered another communicator of this process: %w",
			key.Controller, context.Cause(ctx))
	}
	if a.at != nil {
		return a.at, nil
	}
	at, err := dialController(ctx, fab, key.Port, min(c.Cfg.Timeout, maxTakeover))
	if err != nil {
		return nil, err
	}
	at.Key = key
	at.OnWanted(at.tellWanted)
	if at.rings == nil { // else the rings' bell rings
		at.OnChange(at.changed)
	}
	a.at = at
	return at, nil
}

// Detach ends the caller's use of the connection. The last user closes it.
func (a *Controller) Detach() { leaveAttachment(a.Key) }

func leaveAttachment(key controllerKey) {
	attachments.Lock()
	defer attachments.Unlock()
	a := attachments.open[key]
	if a.users--; a.users > 0 {
		return
	}
	delete(attachments.open, key)
	if a.at != nil {
		_ = a.at.Close() // always nil
	}
}

// Watch makes the controller call wake when it has news for a user. A nil wake ends this.
func (a *Controller) Watch(user any, wake func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if wake == nil {
		delete(a.wakers, user)
		return
	}
	if a.wakers == nil {
		a.wakers = map[any]func(){}
	}
	a.wakers[user] = wake
}

// WatchWanted makes the controller call f, which must not block, when others want planes of a holder. A nil f ends
// this.
func (a *Controller) WatchWanted(holder uint64, f func(planes uint64)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f == nil {
		delete(a.wanted, holder)
		return
	}
	if a.wanted == nil {
		a.wanted = map[uint64]func(uint64){}
	}
	a.wanted[holder] = f
}

func (a *Controller) tellWanted(holder, planes uint64) {
	a.mu.Lock()
	f := a.wanted[holder]
	a.mu.Unlock()
	if f != nil {
		f(planes)
	}
}

func (a *Controller) changed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, wake := range a.wakers {
		wake()
	}
}

// maxTakeover is how long a communicator waits for another controller after its own has ended. LIGHTPATH_TIMEOUT also
// bounds the wait.
const maxTakeover = 30 * time.Second

// dialController connects to a controller, on this host if possible.
func dialController(ctx context.Context, fab *Fabric, port int, takeover time.Duration) (*Controller, error) {
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
		c, err := rpc.Dial(ctx, remote, port, rpc.Options{CA: tls.CA, Cert: tls.Cert, Key: tls.Key,
			Version: bootstrap.Version, Takeover: takeover})
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		return &Controller{Client: c}, nil
	}
	return nil, failed
}

// dialLocal attaches to a controller on this host.
func dialLocal(socket string, port int) (*Controller, error) {
	l, err := local.Dial(socket, port, bootstrap.Version)
	if err != nil {
		return nil, err
	}
	if l.DataPlane() != ocsctl.DataMemory {
		return &Controller{Client: l}, nil
	}
	c, err := emulator.Attach(l)
	if err != nil {
		_ = l.Close() // always nil
		return nil, err
	}
	return &Controller{Client: c, rings: &rings{ports: c.Ports(), mtu: c.MTU()}}, nil
}

// Circuits makes the endpoint of the planes with circuits.
func Circuits(c *comm.Core, fab *Fabric, at *Controller) (e transport.Endpoint, hcas topology.HCAs, err error) {
	health := func(plane int) error { _, err := at.Poll(plane); return err }
	switch {
	case at.rings != nil && c.Cfg.Transport == settings.TransportEBPF:
		return nil, hcas, fmt.Errorf("shim: rank %d: LIGHTPATH_TRANSPORT=%s, but the planes of fabric %s are in the "+
			"memory of its controller: %w",
			c.Rank, settings.TransportEBPF, fab.Path, errdefs.ErrInvalidUsage)
	case at.rings != nil:
		e, err = port.New(port.Options{Rank: c.Rank, Ranks: c.Ranks, Ports: at.rings.ports, MTU: at.rings.mtu,
			Health: health})
		return e, hcas, err
	case at.DataPlane() == ocsctl.DataMemory:
		return nil, hcas, fmt.Errorf("shim: rank %d: the planes of fabric %s are in the memory of the controller at "+
			"%s, which only its unix endpoint reaches: %w",
			c.Rank, fab.Path, at.Key.Controller, errdefs.ErrInvalidUsage)
	case at.DataPlane() == ocsctl.DataNone && fab.overRDMA() && c.Cfg.Transport != settings.TransportEBPF:
		if e, hcas, err = circuitsRDMA(c, fab); err != nil {
			return nil, hcas, fmt.Errorf("shim: rank %d: circuits of RDMA ports: %w", c.Rank, err)
		}
		return e, hcas, nil
	}
	e, err = joinSteered(c, fab, at)
	return e, hcas, err
}
