package emulator

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/ocsctl"
	"lightpath/ocsctl/shmring"
)

// Dial attaches to a port of the switch at a socket path ("unix:" may stand before it).
// The client owns its bell.
func Dial(socket string, port int) (*Client, error) {
	bell, err := NewBell()
	if err != nil {
		return nil, err
	}
	c, err := DialBell(socket, port, bell)
	if err != nil {
		bell.Close()
		return nil, err
	}
	c.bell = bell
	return c, nil
}

// DialBell is Dial with a bell that stays the caller's, to be closed after the client: the
// one doorbell that wakes the rank for everything.
func DialBell(socket string, port int, bell *Bell) (*Client, error) {
	if port < 0 {
		return nil, fmt.Errorf("emulator: port %d", port)
	}
	c, err := connect(socket, port, bell.mem.fd)
	if err != nil {
		return nil, err
	}
	if err := c.mapPort(bell); err != nil {
		c.fail(err)
		c.conn.close()
		c.unmap()
		return nil, err
	}
	go c.read()
	return c, nil
}

// connect says hello and maps the status page.
func connect(socket string, port int, fds ...int) (*Client, error) {
	socket = strings.TrimPrefix(socket, "unix:")
	raw, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("emulator: no switch at %s; is `lightpath ocsd` running? %w", socket, ocsctl.ErrControlLost)
	case err != nil:
		return nil, fmt.Errorf("emulator: %w", err)
	}
	c := &Client{
		conn: &conn{UnixConn: raw}, port: port, done: make(chan struct{}),
		answers: map[uint64]chan *message{}, held: map[uint64]uint64{},
	}
	if err := c.greet(fds); err != nil {
		c.conn.close()
		return nil, fmt.Errorf("emulator: switch at %s: %w", socket, err)
	}
	return c, nil
}

func (c *Client) greet(fds []int) error {
	_ = c.conn.SetDeadline(time.Now().Add(requestTimeout))
	if err := c.conn.send(&message{Type: msgHello, Version: ProtocolVersion, Port: c.port}, fds...); err != nil {
		return err
	}
	m, err := c.conn.recv()
	switch {
	case err != nil:
		return err
	case m.Type == msgError:
		return remoteError(m)
	case m.Type != msgWelcome || m.Fabric == nil:
		return fmt.Errorf("%w: %s for a welcome", ErrProtocol, m.Type)
	case m.Version != ProtocolVersion:
		return fmt.Errorf("the switch speaks protocol version %d, this client %d: %w", m.Version, ProtocolVersion, ErrVersion)
	}
	c.fabric = *m.Fabric
	if n := len(c.fabric.Planes); c.fabric.Ports < 1 || c.fabric.Ports > MaxPorts || n < 1 || n > MaxPlanes {
		return fmt.Errorf("%w: %d ports, %d planes", ErrProtocol, c.fabric.Ports, n)
	}
	mem, err := c.adopt(statusSize(len(c.fabric.Planes), c.fabric.Ports), unix.PROT_READ)
	if err != nil {
		return err
	}
	c.status = statusPage{mem.bytes, c.fabric.Ports}
	c.planes = make([]clientPlane, len(c.fabric.Planes))
	return c.conn.SetDeadline(time.Time{})
}

// remoteError makes an error of the switch's refusal, with the sentinel it came from.
func remoteError(m *message) error {
	for _, known := range []error{ErrPortBusy, ErrVersion} {
		if text, ok := strings.CutSuffix(m.Text, known.Error()); ok {
			return fmt.Errorf("%s%w", text, known)
		}
	}
	return errors.New(m.Text)
}

func (c *Client) adopt(size, prot int) (*memory, error) {
	fd, err := c.conn.file()
	if err != nil {
		return nil, err
	}
	mem, err := adoptMemory(fd, size, prot)
	if err != nil {
		return nil, err
	}
	mem.closeFile()
	c.maps = append(c.maps, mem)
	return mem, nil
}

// mapPort maps the rings and the switch's doorbell.
func (c *Client) mapPort(bell *Bell) error {
	door, err := c.adopt(shmring.DoorbellSize, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	ring, err := shmring.NewDoorbell(door.bytes)
	if err != nil {
		return err
	}
	geo := geometry{planes: len(c.fabric.Planes), slots: c.fabric.Slots, mtu: c.fabric.MTU}
	if geo.slots < 1 || geo.slots > maxSlots || geo.mtu <= LabelSize || geo.mtu > maxMTU {
		return fmt.Errorf("emulator: %w: %d slots of %d", ErrProtocol, geo.slots, geo.mtu)
	}
	mem, err := c.adopt(geo.size(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	if c.view, err = geo.view(mem.bytes); err != nil {
		return err
	}
	for p := range geo.planes {
		c.ports = append(c.ports, PortMemory{TX: c.view.tx[p], RX: c.view.rx[p], Bell: bell.Doorbell, Switch: ring, idle: c.view.idle[p]})
	}
	return nil
}
