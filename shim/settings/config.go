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
	Fabric      string
	FabricRank  int // -1: not given
	Transport   string
	Planes      int
	PlaneShares string // SharesMeasured or SharesEven
	Sockets     Sockets
	IB          IB
	NCCL        NCCLPaths

	Algorithms map[string]string      // collective -> algorithm
	files      map[string]*msccl.File // collective -> its algorithm from a file
	Plan       Plan
	Demand     Demand
	Iteration  string // IterationAuto or IterationOff
	Device     Device
	Other      Other
	Plugins    Plugins

	Timeout    time.Duration
	Spin       int
	LargePages bool // buffers that recur in calls over shared memory are moved to large pages
	CPUSpread  bool // a rank that takes turns with a peer on one CPU moves to an idle one
	Fault      Fault

	Log     log.Options
	Trace   string
	Flight  Flight
	Metrics Metrics
	Status  Status

	LauncherRank int      // the rank that the launcher gave this process, -1 without one
	variables    []string // that are set, in words
	warnings     []string // texts about settings without effect
}

// Plan says how plans of collectives on circuits are made.
type Plan struct {
	Planner   string
	Dir       string
	Limit     time.Duration
	Wait      bool
	Tolerance float64 // by which a call's plan may be slower than one made for its size, as a fraction; 0: none is shared
	Current   bool    // plans begin, and end, with the maps that the planes hold
}

// Demand says how grouped sends and receives use circuits.
type Demand struct {
	Method string        // DemandSpectra, DemandPlain or DemandOff
	Wait   time.Duration // how long the leader waits for all ranks to post a group
}

// Device says how ranks exchange device memory.
type Device struct {
	Path     string // one of the DevicePath constants
	Exchange int64  // bytes of device memory that each rank reserves for that, 0 for as many as suit the device
	Register string // the device memory that peers use in place: one of the Register constants
	Staging  int64  // bytes of a buffer that one piece stages
}

// Other is another libnccl. With Interpose it executes collectives on streams as sends and receives, over Nets, its
// networks by plane.
type Other struct {
	library   string
	Interpose bool
	Nets      []string
}

// Plugins are the values of NCCL_NET_PLUGIN, NCCL_PROFILER_PLUGIN and NCCL_TUNER_PLUGIN.
type Plugins struct{ Net, Profiler, Tuner string }

// Flight holds the number of operations in the flight recorder, 0 for the smallest recorder, without times. Dir is the
// directory for recorders of failed communicators, "" for none.
type Flight struct {
	Recorder int
	Dir      string
}

// Status says how a process answers questions about its ranks.
type Status struct {
	Dir        string // of the process's status socket; StatusOff: there is none
	RuntimeDir string // XDG_RUNTIME_DIR
	RAS        bool
	RASAddr    string
}

// Sockets holds the settings of rendezvous, control network and TCP planes.
type Sockets struct {
	If         string
	OOBIf      string
	CommID     string
	Congestion string        // congestion control of TCP planes; "": the host's default, but no bbr
	Heartbeat  time.Duration // 0: none
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
	if c.Device.Staging != DefaultStaging {
		s += fmt.Sprintf(" LIGHTPATH_STAGING=%d", c.Device.Staging)
	}
	if len(items) > 0 {
		s += " LIGHTPATH_ALGORITHM=" + strings.Join(items, ",")
	}
	if c.Device.Path != DevicePathAuto || c.Device.Exchange != 0 {
		s += fmt.Sprintf(" LIGHTPATH_DEVICE_PATH=%s LIGHTPATH_DEVICE_EXCHANGE=%d", c.Device.Path, c.Device.Exchange)
	}
	if c.Plan.Current {
		s += " LIGHTPATH_PLAN_INITIAL=current"
	}
	if c.Other.Interpose {
		s += " LIGHTPATH_FALLBACK=interpose LIGHTPATH_INTERPOSE_NETS=" + strings.Join(c.Other.Nets, ",")
	}
	return s
}

// ControlInterfaces returns the interfaces for rendezvous and control.
func (c *Config) ControlInterfaces() string {
	if c.Sockets.OOBIf != "" {
		return c.Sockets.OOBIf
	}
	return c.Sockets.If
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
