package fabric

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"lightpath/internal/files"
	"lightpath/plans"
)

// Version is the version of fabric and ocsd files.
const Version = 1

// ErrFabric is wrapped by every error about a file of this package.
var ErrFabric = errors.New("bad configuration")

// Drivers of optical circuit switches, as a fabric file names them.
const (
	DriverEmulator = "emulator"
	DriverGNMI     = "gnmi"
	DriverPolatis  = "polatis-scpi"
	DriverNETCONF  = "netconf"
)

// Fabric is a fabric file: the planes and switches that join the ranks of a job. A decoded fabric is consistent (see
// [Decode]). It must not be changed, and is safe for concurrent use.
type Fabric struct {
	Version    int
	Name       string // "" where not given
	Ranks      int    // the sum over Hosts where those are given
	Hosts      []Host
	Planes     []Plane
	OCS        []OCS
	Costs      Costs
	Packets    PacketPlanes
	Circuits   plans.CircuitKind
	Forwarding bool
	Pods       [][]int // a partition of the ranks; nil where there are none
	// PinnedBy is the owner of the circuits, such as the job for which they were planned. Then only operators move
	// circuits. "": jobs move them.
	PinnedBy   string
	Controller Controller
}

// Controller holds the addresses at which ranks and operators find the controller of the planes.
type Controller struct {
	// Endpoints are tried in turn: "unix:/path" on the ranks' host, else host:port. Nil if the file names none: then
	// the endpoint of an emulated switch is the controller's.
	Endpoints []string
	TLS       TLS // identity of the ranks, and the authorities that they trust
}

// TLS names the files of keys and certificates of one end of a connection; "" where not
// given. Paths are relative to the file that names them.
type TLS struct {
	CA, Cert, Key string
}

// Host is a machine; ranks are numbered host by host, in the order of the file.
type Host struct {
	Name    string
	Ranks   int
	Address string // "" where not given
}

// Plane is one plane: a port for every rank on one switch.
type Plane struct {
	Name      string
	Bandwidth Rate
	// OCS is the name of the plane's switch; "" on every plane of a packet fabric.
	OCS string
	// Ports holds the switch port of each rank. Nil if the file gives none, which only an emulated switch allows: there
	// rank and port are equal.
	Ports []string
	// Spares are ports of the switch that no rank uses. An operator may move a rank's port to one of them.
	Spares []string
	// Interface and HCA name the rank's side; at most one is set.
	Interface, HCA string
}

// OCS is an optical circuit switch. Several planes may be parts of one.
type OCS struct {
	Name     string
	Driver   string // a Driver constant
	Endpoint string // "unix:/path" for the emulator; required for the other drivers
	Dialect  string
	Reconfig time.Duration
	// ReconfigPerPort is the time that each transmit port with a new target adds.
	ReconfigPerPort time.Duration
}

// Costs are the latencies of the cost model.
type Costs struct {
	Alpha time.Duration // per transmit entry
	Hop   time.Duration // per hop of the longest flow
	// Barrier is the time of a reconfiguration in addition to the switch's own: to agree on it, to learn of its end,
	// and to go on.
	Barrier time.Duration
}

// PacketPlanes are the costs of the planes without circuits that ranks of a fabric with circuits have besides, such as
// TCP over other NICs.
type PacketPlanes struct {
	Bandwidth Rate          // of a rank in one direction, over all packet planes together; 0: the file states none
	Alpha     time.Duration // of a round of messages, in addition to their bytes
}

// String returns the line of a fabric file.
func (p PacketPlanes) String() string {
	return fmt.Sprintf("packet_planes: {bandwidth: %v, alpha: %s}", p.Bandwidth, formatDuration(p.Alpha))
}

// Optical reports whether the planes have switches.
func (f *Fabric) Optical() bool { return len(f.Planes) > 0 && f.Planes[0].OCS != "" }

// PlaneNames returns the names of the planes, in their order.
func (f *Fabric) PlaneNames() (names []string) {
	for _, p := range f.Planes {
		names = append(names, p.Name)
	}
	return names
}

// Endpoints returns the addresses at which ranks find the controller of the planes: those in the file, or else
// the endpoint of the emulated switch; nil if there is neither.
func (f *Fabric) Endpoints() []string {
	if f.Controller.Endpoints != nil || !f.Optical() {
		return f.Controller.Endpoints
	}
	if s := f.Switch(0); s.Driver == DriverEmulator && s.Endpoint != "" {
		return []string{s.Endpoint}
	}
	return nil
}

// Switch returns the switch of plane j, or nil on a packet fabric.
func (f *Fabric) Switch(j int) *OCS {
	for i := range f.OCS {
		if f.OCS[i].Name == f.Planes[j].OCS {
			return &f.OCS[i]
		}
	}
	return nil
}

// Host returns the host of a rank, or nil if the file lists no hosts.
func (f *Fabric) Host(rank int) *Host {
	for i := range f.Hosts {
		if rank -= f.Hosts[i].Ranks; rank < 0 {
			return &f.Hosts[i]
		}
	}
	return nil
}

// Problem returns the planning problem of the fabric, with open initial and final maps. The caller adds steps or a
// demand. The reconfiguration cost is that of the slowest switch plus the barrier's.
func (f *Fabric) Problem() *plans.Problem {
	p := &plans.Problem{
		Version:       plans.Version,
		Ranks:         f.Ranks,
		Planes:        len(f.Planes),
		BandwidthGbps: float64(f.Planes[0].Bandwidth) / 1e9,
		AlphaUS:       microseconds(f.Costs.Alpha),
		HopUS:         microseconds(f.Costs.Hop),
		Forwarding:    f.Forwarding,
		Circuits:      f.Circuits,
	}
	for j := range f.Planes {
		if s := f.Switch(j); s != nil {
			p.ReconfigUS = max(p.ReconfigUS, microseconds(s.Reconfig))
			p.ReconfigPerPort = max(p.ReconfigPerPort, microseconds(s.ReconfigPerPort))
		}
	}
	if f.Optical() {
		p.ReconfigUS += microseconds(f.Costs.Barrier)
	}
	return p
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// Digest returns the SHA-256, in lower-case hex, of the output of [Fabric.Encode] without the controller. Files that
// describe the same planes have the same digest: layout and the paths of keys do not count.
func (f *Fabric) Digest() string {
	planes := *f
	planes.Controller = Controller{}
	sum := sha256.Sum256(planes.Encode())
	return hex.EncodeToString(sum[:])
}

// Load reads the fabric file at path.
func Load(path string) (*Fabric, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	f, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.Controller.TLS.beside(path)
	return f, nil
}

// beside joins relative file names to the directory of the file at path.
func (t *TLS) beside(path string) { besideFile(path, &t.CA, &t.Cert, &t.Key) }

func besideFile(path string, names ...*string) {
	for _, name := range names {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(filepath.Dir(path), *name)
		}
	}
}

// readFile reads a file, and refuses one that is too large for a configuration.
func readFile(path string) ([]byte, error) {
	data, err := files.Read(path, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	return data, nil
}
