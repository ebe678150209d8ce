package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/shmring"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
)

// Dial attaches to a port of the controller at a socket path ("unix:" may stand before it). If there is no controller,
// the error wraps ocsctl.ErrControlLost. version is that of the library; "": not compared with the controller's.
func Dial(endpoint string, port int, version string) (*Client, error) {
	if port < 0 {
		return nil, fmt.Errorf("ocs: port %d", port)
	}
	bell, err := shmring.NewBell()
	if err != nil {
		return nil, err
	}
	c, err := connect(endpoint, port, version, bell.Memory.File())
	if err == nil {
		c.bell = bell
		if err = c.mapPort(); err != nil {
			c.fail(err)
			c.conn.close()
			c.unmap()
			return nil, err
		}
		go c.read()
		return c, nil
	}
	bell.Close()
	return nil, err
}

// connect says hello and maps the status page.
func connect(endpoint string, port int, version string, fds ...int) (*Client, error) {
	socket := strings.TrimPrefix(endpoint, "unix:")
	raw, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("ocs: no controller at %s; is `lightpath ocsd` running? %w", socket, ocsctl.ErrControlLost)
	case err != nil:
		return nil, fmt.Errorf("ocs: %w", err)
	}
	c := &Client{
		conn: &conn{UnixConn: raw}, socket: socket, port: port, done: make(chan struct{}),
		answers: map[uint64]chan *message{}, held: map[uint64]uint64{},
	}
	if err := c.greet(version, fds); err != nil {
		c.conn.close()
		c.unmap()
		return nil, fmt.Errorf("ocs: controller at %s: %w", socket, err)
	}
	return c, nil
}

func (c *Client) greet(version string, fds []int) error {
	_ = c.conn.SetDeadline(time.Now().Add(helloTimeout))
	if err := c.conn.send(&message{Type: msgHello, Version: ProtocolVersion, Port: c.port, Software: version},
		fds...); err != nil {
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
		return fmt.Errorf("the controller speaks protocol version %d, this client %d: %w", m.Version, ProtocolVersion,
			ocsctl.ErrVersion)
	}
	if err := ocsctl.CheckVersions(version, m.Software); err != nil {
		return err
	}
	c.version, c.fabric = m.Software, *m.Fabric
	if n := len(c.fabric.Planes); c.fabric.Ports < 1 || c.fabric.Ports > controller.MaxPorts || n < 1 ||
		n > controller.MaxPlanes {
		return fmt.Errorf("%w: %d ports, %d planes", ErrProtocol, c.fabric.Ports, n)
	}
	mem, err := c.adopt(statusSize(len(c.fabric.Planes), c.fabric.Ports), unix.PROT_READ)
	if err != nil {
		return err
	}
	c.status = statusPage{mem.Bytes, c.fabric.Ports, c.port}
	c.planes = make([]clientPlane, len(c.fabric.Planes))
	return c.conn.greeted()
}

// remoteError converts a refusal of the controller to an error that wraps the original sentinel.
func remoteError(m *message) error {
	for _, known := range []error{
		controller.ErrPortBusy, controller.ErrNotLeader, controller.ErrStopped, controller.ErrHeld, ocsctl.ErrVersion,
		ocsctl.ErrPlaneDown, ocsctl.ErrPinned, ocsctl.ErrNotHolder, ocsctl.ErrStaleEpoch, ocsctl.ErrConflict,
		ocsctl.ErrReconfFailed, ocsctl.ErrUnknownMap, ocsctl.ErrPortLost,
	} {
		if text, ok := strings.CutSuffix(m.Text, known.Error()); ok {
			return fmt.Errorf("%s%w", text, known)
		}
	}
	return errors.New(m.Text)
}

func (c *Client) adopt(size, prot int) (*shmring.Memory, error) {
	fd, err := c.conn.file()
	if err != nil {
		return nil, err
	}
	mem, err := shmring.AdoptMemory(fd, size, prot)
	if err != nil {
		return nil, err
	}
	mem.CloseFile()
	c.maps = append(c.maps, mem)
	return mem, nil
}

// maxRings bounds the memory of a data path that a rank maps, in bytes.
const maxRings = 1 << 36

// mapPort maps the memory that the rank shares with the controller and with the data path.
func (c *Client) mapPort() error {
	door, err := c.adopt(shmring.DoorbellSize, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	if c.core, err = shmring.NewDoorbell(door.Bytes); err != nil {
		return err
	}
	geo := geometry{len(c.fabric.Planes), c.fabric.Ports}
	mem, err := c.adopt(geo.size(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	if c.view, err = geo.view(mem.Bytes); err != nil {
		return err
	}
	r := c.fabric.Rings
	if r == nil {
		return nil
	}
	if r.Bytes < 1 || r.Bytes > maxRings {
		return fmt.Errorf("ocs: %w: %d bytes of rings", ErrProtocol, r.Bytes)
	}
	if mem, err = c.adopt(r.Bytes, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		c.rings = mem.Bytes
	}
	return err
}
