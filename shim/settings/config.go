// Package settings is the one home of environment variables: the table of the ones that Lightpath reads (Vars), with
// their documentation, their values (Config), and why others are not read. Tests compare docs/environment.md and the C
// front's table of parameters with it.
package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lightpath/collectives/schedule/msccl"
	"lightpath/shim/log"
	"lightpath/shim/topology"
)

// Config is what the environment says, read once per communicator, which does not change
// it and may read it from everywhere. Fields are named like their variables, whose documentation in the table says what
// they mean.
type Config struct {
	Fabric     string
	FabricRank int // -1: not given
	Transport  string
	Planes     int
	Staging    int64  // bytes of a buffer that are staged at a time
	Congestion string // of tcp planes; "" is the host's
	// PlaneShares is SharesMeasured or SharesEven.
	PlaneShares string
	Planner     string
	PlanDir     string
	PlanLimit   time.Duration
	PlanWait    bool
	// PlanTolerance is by how much, in parts of one, the plan of a call may take longer than
	// one made for its size; 0: every size has its own.
	PlanTolerance float64
	// PlanCurrent: plans begin, and end, with the maps that the planes hold.
	PlanCurrent bool
	Algorithms  map[string]string      // collective -> algorithm
	files       map[string]*msccl.File // collective -> the algorithm that is a file
	// Demand plans grouped sends and receives: DemandSpectra, DemandPlain or DemandOff.
	Demand string
	// Interpose: collectives on streams are executed as sends and receives of the other library, over
	// InterposeNets, its networks by plane.
	Interpose     bool
	InterposeNets []string
	otherLibrary  string
	// DemandWait is how long the leader waits for all ranks to post a group.
	DemandWait time.Duration
	// DevicePath is how ranks exchange memory of devices: one of the DevicePath constants; DeviceExchange
	// how many bytes of its device each has for that.
	DevicePath     string
	DeviceExchange int64
	Timeout        time.Duration
	Heartbeat      time.Duration // 0: none
	Spin           int
	// LargePages: buffers on shared memory that come again and again are moved to large pages.
	LargePages bool
	// CPUSpread: a rank that takes turns with a peer on one CPU moves to an idle one.
	CPUSpread bool
	Fault     Fault
	Trace     string
	// FlightRecorder is how many operations are remembered, 0: the least, without times;
	// FlightDir where the recorder of a communicator that fails is written, "": nowhere.
	FlightRecorder int
	FlightDir      string
	// StatusDir is where the process can be asked; StatusOff: nowhere.
	StatusDir  string
	RuntimeDir string // XDG_RUNTIME_DIR
	RAS        bool
	RASAddr    string

	Log      log.Options
	SocketIf string
	IB       IB
	NCCL     NCCLPaths
	OOBIf    string
	CommID   string

	// LauncherRank is the rank that the launcher gave this process, -1 without one.
	LauncherRank int
	variables    []string // that are set, in words
	warnings     []string // settings without effect, in words
}

// DefaultStaging is large enough for copies to reach their rate, and small beside what pages a process may lock.
const DefaultStaging = 4 << 20

// StatusOff is the value of LIGHTPATH_STATUS_DIR with which a process answers no requests.
const StatusOff = "off"

// DefaultExchange is LIGHTPATH_DEVICE_EXCHANGE's.
const DefaultExchange = 32 << 20

// What LIGHTPATH_PLANE_SHARES can say.
const (
	SharesMeasured = "measured"
	SharesEven     = "even"
)

// What LIGHTPATH_DEMAND can say.
const (
	DemandSpectra = "spectra"
	DemandPlain   = "plain"
	DemandOff     = "off"
)

// PlannerStatic is the planner whose plans move no circuits.
const PlannerStatic = "static"

// Fault is a failure injected into this rank, for tests and `lightpath demo --break`.
type Fault struct {
	SkipDrain bool // before Plane leaves Epoch
	Plane     int
	Epoch     uint32
	PlanDelay time.Duration // before every background plan
}

// What LIGHTPATH_TRANSPORT can say besides the packet planes' own words.
const (
	TransportRDMA = "rdma" // packet planes are ports of RDMA devices
	TransportEBPF = "ebpf" // demands planes whose circuits are real
)

// What LIGHTPATH_DEVICE_PATH can say.
const (
	DevicePathAuto   = "auto"
	DevicePathDirect = "direct"
	DevicePathRDMA   = "rdma"
	DevicePathStaged = "staged"
)

// IB is what NCCL_IB_* variables say.
type IB struct {
	HCAs         topology.HCAs
	Mode         string // RDMAAuto, RDMARC or RDMAUC
	GIDIndex     int    // -1: chosen
	Timeout      int
	Retries      int
	TrafficClass int
	ServiceLevel int
}

// What LIGHTPATH_RDMA_MODE can say.
const (
	RDMAAuto = "auto"
	RDMARC   = "rc"
	RDMAUC   = "uc"
)

// Agreed is what ranks must agree on to make the same choices.
func (c *Config) Agreed() string {
	var items []string
	for coll, name := range c.Algorithms {
		items = append(items, coll+":"+name)
	}
	slices.Sort(items)
	s := fmt.Sprintf("LIGHTPATH_TRANSPORT=%s LIGHTPATH_PLANES=%d", c.Transport, c.Planes) + c.NCCL.agreed()
	if c.IB.Mode != "" && c.IB.Mode != RDMAAuto {
		s += " LIGHTPATH_RDMA_MODE=" + c.IB.Mode
	}
	if c.Staging != DefaultStaging {
		s += fmt.Sprintf(" LIGHTPATH_STAGING=%d", c.Staging)
	}
	if len(items) > 0 {
		s += " LIGHTPATH_ALGORITHM=" + strings.Join(items, ",")
	}
	if c.DevicePath != DevicePathAuto || c.DeviceExchange != DefaultExchange {
		s += fmt.Sprintf(" LIGHTPATH_DEVICE_PATH=%s LIGHTPATH_DEVICE_EXCHANGE=%d", c.DevicePath, c.DeviceExchange)
	}
	if c.PlanCurrent {
		s += " LIGHTPATH_PLAN_INITIAL=current"
	}
	if c.Interpose {
		s += " LIGHTPATH_FALLBACK=interpose LIGHTPATH_INTERPOSE_NETS=" + strings.Join(c.InterposeNets, ",")
	}
	return s
}

// ControlInterfaces is the interfaces for rendezvous and control.
func (c *Config) ControlInterfaces() string {
	if c.OOBIf != "" {
		return c.OOBIf
	}
	return c.SocketIf
}

// Variables says which variables are set, one line each.
func (c *Config) Variables() []string { return c.variables }

// Warnings says what is set in vain: misspelt variables of ours, values that mean nothing, and settings that others
// come before.
func (c *Config) Warnings() []string { return c.warnings }

// NewLog opens the log that is asked for, of a communicator with the given device, and writes the warnings.
func (c *Config) NewLog(device int) *log.Logger {
	l := log.New(&c.Log, device)
	for _, line := range c.warnings {
		l.Warn("%s", line)
	}
	return l
}
