package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"lightpath/internal/files"
	"lightpath/plans/fabric"
)

// Options of a fabric that are not in the fabric file.
type Options struct {
	MTU int // bytes of the largest IP packet; 0 is DefaultMTU
	// Overhead is the number of bytes of a frame, including its Ethernet header, that are no payload. The bandwidth of
	// a plane is the payload rate of full frames, so the rate of its ports is higher. 0: the bandwidth counts whole
	// frames.
	Overhead int
	// Host names this host if several hosts share the fabric. Up builds only the ends of its ranks. The planes'
	// interfaces are those of the host to the other hosts.
	Host string
	// Underlay is the network namespace that has those interfaces; "" is the caller's.
	Underlay string
	// Progress is called with the number of completed ports; it may be nil.
	Progress func(done, total int)
}

// Up builds the planes of a fabric on this host. If the same fabric is up already, Up changes nothing and fresh is
// false. If another fabric of the same name is up, the error wraps ErrChanged. If a process still writes the circuits of
// a fabric that was taken down by force, it wraps ErrBusy. Up first takes down the remains of a process that died while
// it was building. After an error nothing is left.
func Up(f *fabric.Fabric, o Options) (s *State, fresh bool, err error) {
	want, err := plan(f, o)
	if err != nil {
		return nil, false, err
	}
	fail := func(err error) (*State, bool, error) {
		return nil, false, fmt.Errorf("kernel: fabric %s: %w", want.Name, err)
	}
	guard, err := lock(want.Name, buildLock)
	if err != nil {
		return fail(err)
	}
	defer unlock(guard)
	switch have, err := Load(want.Name); {
	case err == nil && !have.same(want):
		return fail(ErrChanged)
	case err == nil:
		if err := have.complete(); err != nil {
			return fail(err)
		}
		return have, false, nil
	case !errors.Is(err, ErrNotUp):
		return nil, false, err
	}
	held, err := writers(want.Name)
	for _, f := range held {
		unlock(f)
	}
	if err != nil { // after Down by force: its writes would not reach the new circuits
		return fail(fmt.Errorf("%w, of the fabric before: end it first", err))
	}
	if err := remove(want.Name); err != nil {
		return fail(err)
	}
	if err := build(want, o); err != nil {
		return fail(errors.Join(err, remove(want.Name)))
	}
	return want, true, nil
}

// Name returns the name of a file's fabric on its host.
func Name(f *fabric.Fabric) string { return NameOn(f, "") }

// NameOn returns the name of a file's fabric on one of several hosts.
func NameOn(f *fabric.Fabric, host string) string {
	if host == "" {
		return canonical(f.Name)
	}
	return canonical(canonical(f.Name) + "-" + host)
}

// NameFor returns the name of a file's fabric on the host of a rank.
func NameFor(f *fabric.Fabric, rank int) string {
	if h := f.Host(rank); h != nil && len(f.Hosts) > 1 {
		return NameOn(f, h.Name)
	}
	return Name(f)
}

// Describe returns the state of a fabric of several hosts, each of which has built its part with these options. It is
// for a process that has no part itself.
func Describe(f *fabric.Fabric, o Options) (*State, error) {
	whole := *f
	whole.Hosts = nil
	s, err := plan(&whole, o)
	if err == nil {
		s.Digest = f.Digest()
	}
	return s, err
}

// ranksOf returns the ranks of a host: all ranks if the fabric has one host.
func ranksOf(f *fabric.Fabric, host string) (first, count int, err error) {
	if host == "" {
		if len(f.Hosts) > 1 {
			return 0, 0, fmt.Errorf("hosts: %d, and each builds its own part of the planes: name one (--host)", len(f.Hosts))
		}
		return 0, f.Ranks, nil
	}
	for _, h := range f.Hosts {
		if h.Name == host {
			return first, h.Ranks, nil
		}
		first += h.Ranks
	}
	return 0, 0, fmt.Errorf("hosts: none is %q", host)
}

// plan returns the state of the fabric to build.
func plan(f *fabric.Fabric, o Options) (*State, error) {
	s := &State{
		Version: version, Name: NameOn(f, o.Host), Host: o.Host, Digest: f.Digest(), Ranks: f.Ranks, Forwarding: f.Forwarding,
		MTU: o.MTU, Overhead: o.Overhead,
	}
	if s.MTU == 0 {
		s.MTU = DefaultMTU
	}
	fail := func(format string, args ...any) (*State, error) {
		return nil, fmt.Errorf("kernel: fabric %s: "+format, append([]any{s.Name}, args...)...)
	}
	switch {
	case f.Ranks < 1 || f.Ranks > maxRanks:
		return fail("ranks: %d, want 1..%d", f.Ranks, maxRanks)
	case len(f.Planes) < 1 || len(f.Planes) > maxPlanes:
		return fail("planes: %d, want 1..%d", len(f.Planes), maxPlanes)
	case s.MTU < minMTU || s.MTU > maxMTU:
		return fail("MTU %d is outside %d..%d", s.MTU, minMTU, maxMTU)
	case s.Overhead < 0 || s.Overhead > minMTU/2:
		return fail("overhead of %d bytes is outside 0..%d", s.Overhead, minMTU/2)
	}
	var err error
	if s.First, s.Count, err = ranksOf(f, o.Host); err != nil {
		return fail("%w", err)
	}
	s.Switch = "lp-" + s.Name + "-ocs"
	s.Namespaces = make([]string, s.Ranks)
	for r := range s.locals() {
		s.Namespaces[r] = fmt.Sprintf("lp-%s-r%d", s.Name, r)
	}
	seen := make(map[string]string)
	for j, p := range f.Planes {
		switch other, twice := seen[p.Interface]; {
		case p.OCS == "":
			return fail("plane %s: has no switch", p.Name)
		case p.Interface == "":
			return fail("plane %s: has no interface: without one it is no plane in the kernel", p.Name)
		case !plausible(p.Interface):
			return fail("plane %s: interface %q: want the name of one, at most 15 letters, digits, '-', '_' or '.'",
				p.Name, p.Interface)
		case twice:
			return fail("plane %s: interface %s is that of plane %s", p.Name, p.Interface, other)
		case p.Bandwidth < 1e6 || p.Bandwidth > 1e13:
			return fail("plane %s: bandwidth %v is outside 1Mbps..10Tbps", p.Name, p.Bandwidth)
		}
		seen[p.Interface] = p.Name
		plane := StatePlane{Name: p.Name, Interface: p.Interface, Rate: int64(p.Bandwidth),
			Addrs: make([]netip.Addr, f.Ranks)}
		for r := range plane.Addrs {
			plane.Addrs[r] = rankAddr(j, r)
		}
		s.Planes = append(s.Planes, plane)
	}
	return s, nil
}

// Limits of an MTU: the minimum of IPv4 and the maximum of veth.
const (
	minMTU = 576
	maxMTU = 65535
)

// plausible reports whether a name can be that of an interface in a rank's namespace.
func plausible(name string) bool {
	if name == "" || len(name) > unix.IFNAMSIZ-1 || name == "lo" || name == "." || name == ".." {
		return false
	}
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// same reports whether two states are of the same fabric, built in the same way.
func (s *State) same(o *State) bool {
	return s.Digest == o.Digest && s.MTU == o.MTU && s.Overhead == o.Overhead
}

// objects are the kernel objects of a fabric while it is built.
type objects struct {
	counters, circuits *ebpf.Map
	tables             tables
}

func (o *objects) close() {
	for _, m := range []*ebpf.Map{o.counters, o.circuits} {
		if m != nil {
			shut(m)
		}
	}
}

// build makes everything, the state last: a fabric with a state is complete.
func build(s *State, how Options) error {
	progress := how.Progress
	if progress == nil {
		progress = func(int, int) {}
	}
	if err := mountBPF(); err != nil {
		return err
	}
	var o objects
	defer o.close()
	if err := o.make(s.slot(len(s.Planes), 0)); err != nil {
		return err
	}
	if err := o.pin(s); err != nil {
		return err
	}
	if err := buildSwitch(s, &o); err != nil {
		return err
	}
	if s.Host != "" {
		if err := buildWires(s, &o, how.Underlay); err != nil {
			return err
		}
	}
	total := s.Count * len(s.Planes)
	for r := range s.locals() {
		if err := buildRank(s, &o, r); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		progress((r-s.First+1)*len(s.Planes), total)
	}
	return s.save()
}

// mountBPF mounts the bpf file system, unless it is mounted.
func mountBPF() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(bpfDir, &fs); err != nil {
		return fmt.Errorf("%s: %w", bpfDir, err)
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpfDir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700"); err != nil {
		return fmt.Errorf("mount a bpf file system at %s: %w", bpfDir, err)
	}
	return nil
}

// make makes the maps for some ports, all dark.
func (o *objects) make(slots int) error {
	for _, m := range []struct {
		to   **ebpf.Map
		name string
		size uint32
	}{
		{&o.counters, countersPin, countersSize},
		{&o.circuits, circuitsPin, circuitSize},
	} {
		var err error
		*m.to, err = ebpf.NewMap(&ebpf.MapSpec{
			Name: "lp_" + m.name, Type: ebpf.Array, KeySize: 4, ValueSize: m.size, MaxEntries: uint32(slots),
			Flags: unix.BPF_F_MMAPABLE,
		})
		if err != nil {
			return fmt.Errorf("map %s: %w", m.name, err)
		}
	}
	o.tables = tables{counters: o.counters.FD(), circuits: o.circuits.FD()}
	return nil
}

// pin pins the maps, which then survive this process.
func (o *objects) pin(s *State) error {
	if err := os.MkdirAll(s.pin(""), 0o700); err != nil {
		return err
	}
	if err := o.counters.Pin(s.pin(countersPin)); err != nil {
		return fmt.Errorf("map %s: %w", countersPin, err)
	}
	if err := o.circuits.Pin(s.pin(circuitsPin)); err != nil {
		return fmt.Errorf("map %s: %w", circuitsPin, err)
	}
	return nil
}

// save writes the state atomically.
func (s *State) save() error {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	return files.Write(statePath(s.Name), append(data, '\n'), 0o644)
}
