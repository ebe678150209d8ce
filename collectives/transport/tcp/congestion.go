package tcp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// A collective sends in bursts, in both directions at once, and changes its peers. bbr takes the pauses for the rate and
// the delay of an empty path, and then sends too little: an AllReduce of four hosts reaches 64 % of the line
// (bench/RESULTS.md). So connections of a host whose default is bbr use reno, which every kernel allows every process.
const (
	unsuited = "bbr"
	instead  = "reno"
)

// setCongestion sets the congestion control of all connections.
func (m *mesh) setCongestion() error {
	for plane, row := range m.fds {
		for rank, fd := range row {
			if fd < 0 {
				continue
			}
			if err := m.o.setCongestion(fd); err != nil {
				return fmt.Errorf("tcp: rank %d, plane %d of rank %d: %w", rank, plane, m.o.Rank, err)
			}
		}
	}
	return nil
}

// setCongestion sets the congestion control of a connection.
func (o *Options) setCongestion(fd int) error {
	name := o.Congestion
	if name == "" {
		host, err := congestion(fd)
		if err != nil || host != unsuited {
			return err
		}
		name = instead
	}
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
		return fmt.Errorf("congestion control %q: %w", name, err)
	}
	return nil
}

// congestion returns the congestion control of a connection.
func congestion(fd int) (string, error) {
	name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil {
		return "", fmt.Errorf("congestion control: %w", err)
	}
	return strings.TrimRight(name, "\x00"), nil
}
