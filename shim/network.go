package shim

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// handshakeTime bounds what a stranger who connects and says nothing can hold.
const handshakeTime = 5 * time.Second

// errStranger is why a connection is dropped; it never reaches a caller.
var errStranger = errors.New("shim: peer does not know the communicator's secret")

const helloMagic = "LPCTL\x00\x00\x01"

// controlAddr picks the address for rendezvous and control: an interface allowed by
// NCCL_SOCKET_IFNAME, else the first that is up and not loopback or docker's, else
// loopback.
func controlAddr(ifnames string) (netip.Addr, error) {
	all, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("shim: list network interfaces: %w", err)
	}
	best, bestRank := netip.Addr{}, 99
	for _, nic := range all {
		if nic.Flags&net.FlagUp == 0 || !ifaceAllowed(nic.Name, ifnames) {
			continue
		}
		rank := 0
		switch {
		case nic.Flags&net.FlagLoopback != 0:
			rank = 4
		case strings.HasPrefix(nic.Name, "docker"):
			rank = 2
		}
		if addr, isV6, ok := usableAddr(nic); ok {
			if isV6 {
				rank++
			}
			if rank < bestRank {
				best, bestRank = addr, rank
			}
		}
	}
	if bestRank == 99 {
		return netip.Addr{}, fmt.Errorf("shim: no usable network interface (NCCL_SOCKET_IFNAME or NCCL_OOB_NET_IFNAME %q): %w", ifnames, ErrInvalidUsage)
	}
	return best, nil
}

// planeAddrs picks the addresses of the tcp planes: those of the interfaces that
// NCCL_SOCKET_IFNAME names. Where it names none, for hosts may have interfaces that lead
// nowhere, they are all at the control network's.
func planeAddrs(ifnames string, control netip.Addr) ([]netip.Addr, error) {
	if ifnames == "" || strings.HasPrefix(ifnames, "^") {
		return []netip.Addr{control}, nil
	}
	nics, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("shim: list network interfaces: %w", err)
	}
	byName := map[string]net.Interface{}
	for _, nic := range nics {
		if nic.Flags&net.FlagUp != 0 {
			byName[nic.Name] = nic
		}
	}
	var all []netip.Addr
	for _, name := range ifaceOrder(slices.Collect(maps.Keys(byName)), ifnames) {
		if addr, _, ok := usableAddr(byName[name]); ok && addr.Is4() == control.Is4() {
			all = append(all, addr)
		}
	}
	return all, nil
}

// ifaceOrder returns those of the names that a list includes, in the order of its items, those of
// one prefix with numbers in order: the same on hosts that found their interfaces in another.
func ifaceOrder(names []string, list string) []string {
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	list, exact := strings.CutPrefix(list, "=")
	var ordered []string
	for item := range strings.SplitSeq(list, ",") {
		for _, name := range names {
			if item != "" && (name == item || !exact && strings.HasPrefix(name, item)) && !slices.Contains(ordered, name) {
				ordered = append(ordered, name)
			}
		}
	}
	return ordered
}

// usableAddr returns an interface's address, IPv4 first. Link-local ones are left out:
// they mean nothing without the name of the interface on the other host.
func usableAddr(nic net.Interface) (addr netip.Addr, isV6, ok bool) {
	addrs, err := nic.Addrs()
	if err != nil {
		return addr, false, false
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if p.Addr().Unmap().Is4() {
			return p.Addr().Unmap(), false, true
		}
		addr, isV6, ok = p.Addr(), true, true
	}
	return addr, isV6, ok
}

// ifaceAllowed interprets NCCL_SOCKET_IFNAME: comma-separated prefixes, "=" for exact
// names, "^" to exclude.
func ifaceAllowed(name, list string) bool {
	if list == "" {
		return true
	}
	list, exclude := strings.CutPrefix(list, "^")
	list, exact := strings.CutPrefix(list, "=")
	for item := range strings.SplitSeq(list, ",") {
		if item != "" && (name == item || !exact && strings.HasPrefix(name, item)) {
			return !exclude
		}
	}
	return exclude
}

// parseCommID reads NCCL_COMM_ID: ip:port, [v6]:port or host:port.
func parseCommID(v string) (netip.AddrPort, error) {
	a, err := net.ResolveTCPAddr("tcp", v)
	if err != nil || a.Port == 0 || a.IP == nil {
		return netip.AddrPort{}, fmt.Errorf("shim: environment variable NCCL_COMM_ID: %q is not host:port: %w", v, ErrInvalidUsage)
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// proof is the answer to a challenge.
func proof(s secret, role string, challenge, nonce []byte) []byte {
	m := hmac.New(sha256.New, s[:])
	m.Write([]byte(role))
	m.Write(challenge)
	m.Write(nonce)
	return m.Sum(nil)
}

// acceptPeer is the listening side of the mutual challenge: each side proves to the other
// that it knows the secret, and neither sends it.
func acceptPeer(conn net.Conn, s secret) error {
	_, err := acceptAny(conn, func(knows func(secret) bool) (secret, bool) { return s, knows(s) })
	return err
}

// acceptAny is acceptPeer where several secrets may be meant: find tries those that there are.
func acceptAny(conn net.Conn, find func(knows func(secret) bool) (secret, bool)) (s secret, err error) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	var hello [8 + 16]byte
	copy(hello[:], helloMagic)
	_, _ = rand.Read(hello[8:])
	if _, err := conn.Write(hello[:]); err != nil {
		return s, err
	}
	var answer [8 + 16 + 32]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return s, err
	}
	nonce := answer[8:24]
	s, ok := find(func(s secret) bool {
		return string(answer[:8]) == helloMagic && hmac.Equal(answer[24:], proof(s, "join", hello[8:], nonce))
	})
	if !ok {
		return s, errStranger
	}
	if _, err := conn.Write(proof(s, "root", hello[8:], nonce)); err != nil {
		return s, err
	}
	return s, conn.SetDeadline(time.Time{})
}

// derive makes a secret from one, for what its holders agree on besides.
func (s secret) derive(what string, numbers ...uint64) (d secret) {
	m := hmac.New(sha256.New, s[:])
	m.Write([]byte(what))
	for _, n := range numbers {
		m.Write(binary.LittleEndian.AppendUint64(nil, n))
	}
	copy(d[:], m.Sum(nil))
	return d
}

// goneAfter is how long an address that was listened on may refuse connections before whoever
// listened there is taken to be gone.
const goneAfter = 2 * time.Second

// dialPeer connects to addr and is the other side of [acceptPeer]. It tries again, until ctx
// or the deadline ends, where the other side does not know the secret yet; and with patience
// where nobody listens yet, else not for long.
func dialPeer(ctx context.Context, addr netip.AddrPort, s secret, deadline time.Time, patience bool) (net.Conn, error) {
	wait := 5 * time.Millisecond
	var refused time.Time
	for {
		dialer := net.Dialer{Timeout: min(5*time.Second, time.Until(deadline))}
		conn, err := dialer.DialContext(ctx, "tcp", addr.String())
		if err == nil {
			stop := closeWith(ctx, conn)
			err = answerPeer(conn, s)
			if stop() && err == nil {
				return conn, nil
			}
			_ = conn.Close()
		}
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("shim: connect to %v: %w", addr, context.Cause(ctx))
		case errors.Is(err, errStranger) || time.Now().Add(wait).After(deadline):
			return nil, fmt.Errorf("shim: connect to %v: %w: %w", addr, err, ErrRemote)
		case !errors.Is(err, syscall.ECONNREFUSED):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case !patience && time.Since(refused) > goneAfter:
			return nil, fmt.Errorf("shim: connect to %v: nobody listens there any more: %w: %w", addr, err, ErrRemote)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, time.Second)
	}
}

// closeWith closes conn when ctx ends, unless stop was called before; stop reports that.
func closeWith(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.Close() })
}

func answerPeer(conn net.Conn, s secret) error {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	var hello [8 + 16]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return err
	}
	if string(hello[:8]) != helloMagic {
		return errStranger
	}
	var answer [8 + 16 + 32]byte
	copy(answer[:], helloMagic)
	_, _ = rand.Read(answer[8:24])
	copy(answer[24:], proof(s, "join", hello[8:], answer[8:24]))
	if _, err := conn.Write(answer[:]); err != nil {
		return err
	}
	var reply [32]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return err
	}
	if !hmac.Equal(reply[:], proof(s, "root", hello[8:], answer[8:24])) {
		return errStranger
	}
	return conn.SetDeadline(time.Time{})
}
