package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lightpath/plans/circuit"
)

// Report is the state of a fabric, port by port.
type Report struct {
	Name   string        `json:"name"`
	Digest string        `json:"digest"`
	Planes []PlaneReport `json:"planes"`
	// Overruns holds, by rank, the frames for which the rank's sockets had no room.
	Overruns []uint64 `json:"socket_overruns"`
	// Problems describes missing parts and lost frames.
	Problems []string `json:"problems,omitempty"`
}

// PlaneReport is a plane's part of a [Report].
type PlaneReport struct {
	Name  string              `json:"name"`
	Map   circuit.Permutation `json:"map"`
	Ports []PortReport        `json:"ports"`
}

// PortReport is a port's part of a [Report].
type PortReport struct {
	Rank      int    `json:"rank"`
	Namespace string `json:"namespace"`
	Interface string `json:"interface"`
	Address   string `json:"address"`
	Up        bool   `json:"up"`
	To        int    `json:"to"` // -1: dark
	Counters  Stats  `json:"counters"`
	Queued    uint64 `json:"queued"`        // frames that wait in the port's queues
	Overflow  uint64 `json:"dropped_queue"` // frames lost by its queues, or by the kernel between two namespaces
}

// Inspect checks all parts of a fabric. The report has the faults of the fabric; an error means that Inspect could not
// check it.
func Inspect(s *State) (*Report, error) {
	v, err := Look(s)
	if err != nil {
		return nil, err
	}
	defer shut(v)
	r := &Report{Name: s.Name, Digest: s.Digest, Overruns: make([]uint64, s.Ranks)}
	for j, p := range s.Planes {
		m, err := v.Map(j)
		if err != nil {
			return nil, err
		}
		pr := PlaneReport{Name: p.Name, Map: m, Ports: make([]PortReport, s.Count)}
		for rank := range s.locals() {
			c, err := v.Counters(j, rank)
			if err != nil {
				return nil, err
			}
			pr.Ports[rank-s.First] = PortReport{
				Rank: rank, Namespace: s.Namespaces[rank], Interface: p.Interface, Address: p.Addrs[rank].String(), To: m[rank],
				Counters: c.Stats(),
			}
		}
		r.Planes = append(r.Planes, pr)
	}
	for rank := range s.locals() {
		if err := within(s.Namespaces[rank], func() error { return r.lookAt(s, rank) }); err != nil {
			r.problem("rank %d: %v", rank, err)
		}
	}
	if err := within(s.Switch, func() error { return r.lookAtSwitch(s) }); err != nil {
		r.problem("switch: %v", err)
	}
	for j := range r.Planes {
		for i := range r.Planes[j].Ports {
			r.losses(r.Planes[j].Name, &r.Planes[j].Ports[i])
		}
	}
	return r, nil
}

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// losses adds the losses of a port to the problems.
func (r *Report) losses(plane string, p *PortReport) {
	for _, loss := range []struct {
		frames uint64
		what   string
	}{
		{p.Counters.Dark, "on a dark circuit"},
		{p.Counters.Misdirected, "on a circuit to another rank"},
		{p.Counters.CameBack, "that came back to their sender"},
		{p.Counters.Strayed, "that were not for this rank"},
		{p.Overflow, "for want of room in a queue"},
	} {
		if loss.frames > 0 {
			r.problem("plane %s: rank %d: %d frames lost %s", plane, p.Rank, loss.frames, loss.what)
		}
	}
}

// lookAt checks a rank's ends, in the rank's namespace.
func (r *Report) lookAt(s *State, rank int) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	for j, plane := range s.Planes {
		p := &r.Planes[j].Ports[rank-s.First]
		l, err := h.LinkByName(plane.Interface)
		if err != nil {
			r.problem("plane %s: rank %d: interface %s: %v", plane.Name, rank, plane.Interface, err)
			continue
		}
		a := l.Attrs()
		p.Up = a.OperState == netlink.OperUp
		if !p.Up {
			r.problem("plane %s: rank %d: interface %s is %s", plane.Name, rank, plane.Interface, a.OperState)
		}
		if a.Statistics != nil {
			p.Overflow += a.Statistics.RxDropped
		}
		if err := p.queues(h, l); err != nil {
			r.problem("plane %s: rank %d: %v", plane.Name, rank, err)
		}
		for _, pin := range []string{ingressPin(j, rank), egressPin(j, rank)} {
			r.attached(s, pin, a.Index, plane.Name, rank)
		}
	}
	if r.Overruns[rank], err = overruns(); err == nil && r.Overruns[rank] > 0 {
		r.problem("rank %d: %d frames lost for want of room in a socket", rank, r.Overruns[rank])
	}
	return err
}

// overruns reads the number of frames that sockets of the thread's namespace have lost.
func overruns() (uint64, error) {
	data, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, err
	}
	return parseOverruns(string(data))
}

// parseOverruns finds RcvbufErrors of UDP in a table with pairs of rows: names and values.
func parseOverruns(table string) (uint64, error) {
	var names []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		if i := slices.Index(names, "RcvbufErrors"); i >= 0 && i < len(fields) {
			return strconv.ParseUint(fields[i], 10, 64)
		}
		break
	}
	return 0, errors.New("UDP's counters have no RcvbufErrors")
}

// queues reads the statistics of a port's queues.
func (p *PortReport) queues(h *netlink.Handle, l netlink.Link) error {
	qdiscs, err := h.QdiscList(l)
	if err != nil {
		return fmt.Errorf("qdisc: %w", err)
	}
	i := slices.IndexFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "htb" })
	if i < 0 {
		return errors.New("qdisc htb is missing")
	}
	if st := qdiscs[i].Attrs().Statistics; st != nil && st.Queue != nil {
		p.Queued = uint64(st.Queue.Qlen)
		p.Overflow += uint64(st.Queue.Drops)
	}
	return nil
}

// lookAtSwitch checks the switch's ends, in its namespace.
func (r *Report) lookAtSwitch(s *State) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	for j, plane := range s.Planes {
		for rank := range s.locals() {
			l, err := h.LinkByName(switchLink(j, rank))
			if err != nil {
				r.problem("plane %s: rank %d: the switch's end is missing: %v", plane.Name, rank, err)
				continue
			}
			if st := l.Attrs().Statistics; st != nil {
				// RxDropped counts frames that did not reach the program, not frames that the program drops.
				r.Planes[j].Ports[rank-s.First].Overflow += st.RxDropped
			}
			r.attached(s, switchPin(j, rank), l.Attrs().Index, plane.Name, rank)
			if s.Host != "" {
				r.lookAtWire(h, plane, j, &r.Planes[j].Ports[rank-s.First])
				r.attached(s, wirePin(j, rank), l.Attrs().Index+wireShift, plane.Name, rank)
			}
		}
	}
	return nil
}

// lookAtWire checks a port's end on the Ethernet between hosts. It is down if the host's interface is.
func (r *Report) lookAtWire(h *netlink.Handle, plane StatePlane, j int, p *PortReport) {
	l, err := h.LinkByName(wireLink(j, p.Rank))
	switch {
	case err != nil:
		p.Up = false
		r.problem("plane %s: rank %d: its end on the Ethernet between hosts is missing: %v", plane.Name, p.Rank, err)
	case l.Attrs().OperState != netlink.OperUp:
		p.Up = false
		r.problem("plane %s: rank %d: the host's interface %s is down (%s)",
			plane.Name, p.Rank, plane.Interface, l.Attrs().OperState)
	}
}

// Down returns the planes with a port that is down.
func (r *Report) Down() (planes []string) {
	for i := range r.Planes {
		if slices.ContainsFunc(r.Planes[i].Ports, func(p PortReport) bool { return !p.Up }) {
			planes = append(planes, r.Planes[i].Name)
		}
	}
	return planes
}

// attached adds a problem if a program is not attached to its interface.
func (r *Report) attached(s *State, pin string, index int, plane string, rank int) {
	err := func() error {
		l, err := link.LoadPinnedLink(s.pin(pin), nil)
		if err != nil {
			return err
		}
		defer shut(l)
		info, err := l.Info()
		if err != nil {
			return err
		}
		if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != index {
			return errors.New("it is not attached")
		}
		return nil
	}()
	if err != nil {
		r.problem("plane %s: rank %d: program %s: %v", plane, rank, pin, err)
	}
}

// pins returns the pins of a port's programs.
func (s *State) pins(plane, rank int) []string {
	all := []string{switchPin(plane, rank), ingressPin(plane, rank), egressPin(plane, rank)}
	if s.Host != "" {
		all = append(all, wirePin(plane, rank))
	}
	return all
}

// complete returns an error that names the missing parts of a fabric that has a state.
func (s *State) complete() error {
	for _, namespace := range s.everyNamespace() {
		if err := within(namespace, func() error { return nil }); err != nil {
			return fmt.Errorf("%w: %w: down first", ErrNotUp, err)
		}
	}
	var missing []error
	for j, plane := range s.Planes {
		for r := range s.locals() {
			for _, pin := range s.pins(j, r) {
				if _, err := os.Stat(s.pin(pin)); err != nil {
					missing = append(missing, fmt.Errorf("plane %s: rank %d: program %s is missing", plane.Name, r, pin))
				}
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %w (and %d more like it): down first", ErrNotUp, missing[0], len(missing)-1)
	}
	v, err := Look(s)
	if err != nil {
		return fmt.Errorf("%w: down first", err)
	}
	return v.Close()
}
