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

// Config holds the values of the environment variables, read once per communicator. It does not change afterwards, so
// any goroutine may read it. Fields are named like their variables; the table documents them.
type Config struct {
	Fabric     string
	FabricRank int // -1: not given
	Transport  string
	Planes     int
	Staging    int64  // bytes of a buffer that one piece stages
	Congestion string // congestion control of TCP planes; "": the host's default, but no bbr
	// PlaneShares is SharesMeasured or SharesEven.
	PlaneShares string
	Planner     string
	PlanDir     string
	PlanLimit   time.Duration
	PlanWait    bool
	// PlanTolerance is the fraction by which the plan of a call may be slower than a plan made for its size. 0: every
	// size has its own plan.
	PlanTolerance float64
	// PlanCurrent: plans begin, and end, with the maps that the planes hold.
	PlanCurrent bool
	Algorithms  map[string]string      // collective -> algorithm
	files       map[string]*msccl.File // collective -> its algorithm from a file
	// Demand plans grouped sends and receives: DemandSpectra, DemandPlain or DemandOff.
	Demand string
	// Iteration is IterationAuto or IterationOff.
	Iteration string
	// Interpose: collectives on streams are executed as sends and receives of the other library, over
	// InterposeNets, its networks by plane.
	Interpose      bool
	InterposeNets  []string
	otherLibrary   string
	NetPlugin      string // NCCL_NET_PLUGIN
	ProfilerPlugin string // NCCL_PROFILER_PLUGIN
	TunerPlugin    string // NCCL_TUNER_PLUGIN
	// DemandWait is how long the leader waits for all ranks to post a group.
	DemandWait time.Duration
	// DevicePath is how ranks exchange device memory: one of the DevicePath constants. DeviceExchange is the bytes of
	// device memory that each rank reserves for that, 0 for as many as suit the device.
	DevicePath     string
	DeviceExchange int64
	// DeviceRegister says what device memory peers use in place: one of the Register constants.
	DeviceRegister string
	Timeout        time.Duration
	Heartbeat      time.Duration // 0: none
	Spin           int
	// LargePages: buffers that recur in calls over shared memory are moved to large pages.
	LargePages bool
	// CPUSpread: a rank that takes turns with a peer on one CPU moves to an idle one.
	CPUSpread bool
	Fault     Fault
	Trace     string
	// FlightRecorder is the number of operations in the flight recorder; 0: the smallest recorder, without times.
	// FlightDir is the directory for recorders of failed communicators; "": they are not written.
	FlightRecorder int
	FlightDir      string
	Metrics        Metrics
	// StatusDir is the directory of the process's status socket; StatusOff: there is none.
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
	warnings     []string // texts about settings without effect
}

// DefaultStaging is large enough for copies at full rate, and small compared with the pages that a process may lock.
const DefaultStaging = 4 << 20

// StatusOff is the value of LIGHTPATH_STATUS_DIR with which a process answers no requests.
const StatusOff = "off"

// DefaultExchange is the least device memory for exchange that a rank reserves by itself, in bytes.
const DefaultExchange = 32 << 20

// Values of LIGHTPATH_PLANE_SHARES.
const (
	SharesMeasured = "measured"
	SharesEven     = "even"
)

// Values of LIGHTPATH_DEMAND.
const (
	DemandSpectra = "spectra"
	DemandPlain   = "plain"
	DemandOff     = "off"
)

// Values of LIGHTPATH_ITERATION.
const (
	IterationAuto = "auto"
	IterationOff  = "off"
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

// Values of LIGHTPATH_TRANSPORT besides the names of packet transports.
const (
	TransportRDMA = "rdma" // packet planes are ports of RDMA devices
	TransportNet  = "net"  // packet planes are devices of a network plugin
	TransportEBPF = "ebpf" // requires planes over network interfaces
)

// Values of LIGHTPATH_DEVICE_REGISTER.
const (
	RegisterRecurring = "recurring"
	RegisterExplicit  = "explicit"
)

// Values of LIGHTPATH_DEVICE_PATH.
const (
	DevicePathAuto   = "auto"
	DevicePathDirect = "direct"
	DevicePathRDMA   = "rdma"
	DevicePathStaged = "staged"
)

// Metrics is the directory for the metrics of each process, "" for none, and whether they are lines of JSON.
type Metrics struct {
	Dir  string
	JSON bool
}

// IB holds the NCCL_IB_* variables.
type IB struct {
	HCAs         topology.HCAs
	Mode         string // RDMAAuto, RDMARC or RDMAUC
	GIDIndex     int    // -1: chosen
	Timeout      int
	Retries      int
	TrafficClass int
	ServiceLevel int
}

// Values of LIGHTPATH_RDMA_MODE.
const (
	RDMAAuto = "auto"
	RDMARC   = "rc"
	RDMAUC   = "uc"
)

// Agreed holds the settings on which ranks must agree to make the same choices.
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
	if c.DevicePath != DevicePathAuto || c.DeviceExchange != 0 {
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

// ControlInterfaces returns the interfaces for rendezvous and control.
func (c *Config) ControlInterfaces() string {
	if c.OOBIf != "" {
		return c.OOBIf
	}
	return c.SocketIf
}

// Variables returns a line for each variable that is set.
func (c *Config) Variables() []string { return c.variables }

// Warnings returns texts about settings without effect: misspelt variables of Lightpath, invalid values, and settings
// that others override.
func (c *Config) Warnings() []string { return c.warnings }

// NewLog opens the log of a communicator with the given device, and writes the warnings.
func (c *Config) NewLog(device int) *log.Logger {
	l := log.New(&c.Log, device)
	for _, line := range c.warnings {
		l.Warn("%s", line)
	}
	return l
}
