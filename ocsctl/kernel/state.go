package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"lightpath/internal/decode"
	"lightpath/plans/fabric"
)

// version is the version of the state file. A fabric of another version is refused.
const version = 1

// Directories with the state files, pins and names of a host's fabrics.
const (
	runDir   = "/run/lightpath/fabric"
	bpfDir   = "/sys/fs/bpf"
	pinDir   = bpfDir + "/lightpath"
	netnsDir = "/run/netns"
)

// DefaultMTU is the default size of the largest IP packet on a plane, in bytes.
const DefaultMTU = 9000

// Errors of fabrics in the kernel.
var (
	// ErrNotUp: there is no such fabric on this host, or it is not complete.
	ErrNotUp = errors.New("fabric is not up")
	// ErrChanged: the fabric that is up was built from another file or with other options.
	ErrChanged = errors.New("another fabric of this name is up: down first")
	// ErrBusy: another process writes the circuits.
	ErrBusy = errors.New("circuits have another writer")
	// ErrVersion: the fabric was built by a version that this one cannot use.
	ErrVersion = errors.New("fabric was built by another version")
)

// Refused reports whether err says that the host, as it is now, cannot do what was asked.
func Refused(err error) bool {
	return errors.Is(err, ErrChanged) || errors.Is(err, ErrNotUp) || errors.Is(err, ErrBusy) || errors.Is(err, ErrVersion)
}

// State describes a fabric that is up. It is the content of a file under /run/lightpath/fabric. It does not change
// after reading, and is safe for concurrent use.
type State struct {
	Version    int      `json:"version"`
	Name       string   `json:"name"`
	Digest     string   `json:"digest"` // of the fabric file
	Ranks      int      `json:"ranks"`
	Forwarding bool     `json:"forwarding"`
	MTU        int      `json:"mtu"`        // bytes of the largest IP packet
	Overhead   int      `json:"overhead"`   // bytes of a frame that are no payload
	Switch     string   `json:"switch"`     // namespace of the switch
	Namespaces []string `json:"namespaces"` // of the ranks, "" for ranks of other hosts
	// Host is the name of this host if several hosts share the fabric. Its ranks are First to First+Count-1.
	Host   string       `json:"host,omitempty"`
	First  int          `json:"first"`
	Count  int          `json:"count"`
	Planes []StatePlane `json:"planes"`
}

// StatePlane is a plane's part of a [State].
type StatePlane struct {
	Name      string       `json:"name"`
	Interface string       `json:"interface"` // in every rank's namespace
	Rate      int64        `json:"rate_bits"` // bits of payload per second, port and direction
	Addrs     []netip.Addr `json:"addrs"`     // by rank
}

// Load reads the state of a fabric by its name. The error wraps ErrNotUp or ErrVersion.
func Load(name string) (*State, error) {
	name = canonical(name)
	data, err := os.ReadFile(statePath(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("kernel: fabric %s: %w: lightpath fabric up builds it", name, ErrNotUp)
	case err != nil:
		return nil, fmt.Errorf("kernel: fabric %s: %w", name, err)
	}
	s, err := decodeState(data)
	if err != nil {
		return nil, fmt.Errorf("kernel: fabric %s: %s: %w", name, statePath(name), err)
	}
	return s, nil
}

// LoadOn reads the state of a file's fabric on a host, as [NameOn] names it. If the fabric that is up was built from
// another file, the error wraps ErrChanged.
func LoadOn(f *fabric.Fabric, host string) (*State, error) {
	s, err := Load(NameOn(f, host))
	if err == nil && s.Digest != f.Digest() {
		return nil, fmt.Errorf("fabric %s: %w", s.Name, ErrChanged)
	}
	return s, err
}

// decodeState reads and checks a state file.
func decodeState(data []byte) (*State, error) {
	s := new(State)
	if err := decode.JSON(data, s); err != nil {
		return nil, err
	}
	if s.Version != version {
		return nil, fmt.Errorf("%w: it has version %d, this is %d", ErrVersion, s.Version, version)
	}
	if s.Ranks < 1 || s.Ranks > maxRanks || len(s.Namespaces) != s.Ranks || len(s.Planes) < 1 ||
		len(s.Planes) > maxPlanes {
		return nil, fmt.Errorf("%d ranks, %d namespaces, %d planes", s.Ranks, len(s.Namespaces), len(s.Planes))
	}
	if s.First < 0 || s.Count < 1 || s.First > s.Ranks-s.Count {
		return nil, fmt.Errorf("ranks %d to %d of %d", s.First, s.First+s.Count-1, s.Ranks)
	}
	for j, p := range s.Planes {
		if len(p.Addrs) != s.Ranks || slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return !a.Is4() }) {
			return nil, fmt.Errorf("planes[%d]: addrs: want an IPv4 address for each of %d ranks", j, s.Ranks)
		}
	}
	return s, nil
}

// local reports whether a rank is one of this host.
func (s *State) local(rank int) bool { return rank >= s.First && rank < s.First+s.Count }

// locals yields the ranks of this host.
func (s *State) locals() iter.Seq[int] {
	return func(yield func(int) bool) {
		for r := s.First; r < s.First+s.Count && yield(r); r++ {
		}
	}
}

// maxName bounds the names of fabrics, so that names derived from them stay within all limits.
const maxName = 24

// canonical returns the name in a fabric's namespaces and files: the fabric's own name if it is short and plain,
// otherwise a part of it with a digest of the whole. canonical does not change a canonical name.
func canonical(name string) string {
	if name == "" {
		return "fabric"
	}
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, name)
	if plain == name && len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return plain[:min(len(plain), maxName-7)] + "-" + hex.EncodeToString(sum[:3])
}

func statePath(name string) string { return filepath.Join(runDir, name+".json") }

// Names of the pinned objects of a fabric.
const (
	countersPin = "counters"
	circuitsPin = "circuits"
)

// Sizes of the values of the maps.
const (
	countersSize = uint32(unsafe.Sizeof(Counters{}))
	circuitSize  = uint32(unsafe.Sizeof(circuitEntry(0)))
)
