package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"lightpath/plans/planner"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/status"
	"lightpath/shim/topology"
)

// Var is one environment variable that Lightpath reads. The table of them is the only place where the environment is
// read. An unset variable has the value Default, "" for none.
type Var struct {
	Name, Type, Default, Doc string
	set                      func(c *Config, value string) error
}

// inWords are the variables whose default is not a value but described in words.
var inWords = []string{
	"LIGHTPATH_FABRIC_RANK", "LIGHTPATH_STATUS_DIR", "NCCL_DEBUG_FILE", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN",
}

// MaxPlanes bounds the packet planes of a communicator.
const MaxPlanes = 16

// launcherRanks are the variables by which launchers tell a process its rank, in order of preference: torchrun, Open
// MPI, MPICH/PMI, Slurm.
var launcherRanks = []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}

// vars is the table. Empty values count as unset.
var vars = []Var{
	{"LIGHTPATH_FABRIC", "path", "",
		"fabric file. Without a file, or without circuits in it, all calls use packet planes",
		func(c *Config, v string) error { c.Fabric = v; return nil }},
	{"LIGHTPATH_FABRIC_RANK", "int", "launcher's rank, else the communicator's",
		"port of this process on every plane of the fabric",
		func(c *Config, v string) error { return setInt(&c.FabricRank, v, 0, 1<<16-1) }},
	{"LIGHTPATH_TRANSPORT", "auto|shm|tcp|inproc|rdma|net|ebpf", "auto",
		"data path of the packet planes. auto: inproc within one process, shm within one host, else tcp, " +
			"unless NCCL_SHM_DISABLE or NCCL_NET says otherwise. rdma: ports of RDMA devices (NCCL_IB_HCA). net: " +
			"devices of a network plugin (NCCL_NET_PLUGIN). ebpf: as auto, and planes with circuits must be interfaces. " +
			"The same on every rank",
		func(c *Config, v string) error {
			return setChoice(&c.Transport, v, "auto", "shm", "tcp", "inproc", TransportRDMA, TransportNet, TransportEBPF)
		}},
	{"LIGHTPATH_PLANES", fmt.Sprintf("int 1..%d", MaxPlanes), "1",
		"packet planes of a communicator. The same on every rank",
		func(c *Config, v string) error { return setInt(&c.Planes, v, 1, MaxPlanes) }},
	{"LIGHTPATH_STAGING", "bytes 64K..1G", "4M",
		"largest piece of a device buffer that is copied through page-locked host memory at a time. " +
			"The same on every rank",
		func(c *Config, v string) error { return setBytes(&c.Device.Staging, v, 64<<10, 1<<30) }},
	{"LIGHTPATH_TCP_CONGESTION", "name", "",
		"congestion control of tcp planes; the host must allow it. Empty: the host's default, but reno instead of bbr, " +
			"which reaches two thirds of the line where ranks change their peers",
		func(c *Config, v string) error { c.Sockets.Congestion = v; return nil }},
	{"LIGHTPATH_PLANE_SHARES", "measured|even", SharesEven,
		"how large calls are divided over several tcp or rdma planes. even: equal parts. measured: by recent " +
			"throughput of each plane, which all ranks agree on. If one rank says even, all ranks use even",
		func(c *Config, v string) error { return setChoice(&c.PlaneShares, v, SharesMeasured, SharesEven) }},
	{"LIGHTPATH_PLANNER", "name", planner.Auto,
		"planner of collectives on circuits: " + strings.Join(planner.Names(), ", ") + ". With auto, calls that are faster " +
			"on packet planes use these. With another planner, all calls use circuits",
		func(c *Config, v string) error { return setChoice(&c.Plan.Planner, v, planner.Names()...) }},
	{"LIGHTPATH_PLAN_DIR", "path", "",
		"directory of the plan cache. Empty: plans stay in memory",
		func(c *Config, v string) error { c.Plan.Dir = v; return nil }},
	{"LIGHTPATH_PLAN_LIMIT", "duration", "2s",
		"maximum time to plan one call shape. A search that could save little takes less",
		func(c *Config, v string) error { return setDuration(&c.Plan.Limit, v) }},
	{"LIGHTPATH_PLAN_WAIT", "0|1", "0",
		"1: the first call of a shape waits for its plan. 0: it runs with the interim plan",
		func(c *Config, v string) error { return setBool(&c.Plan.Wait, v) }},
	{"LIGHTPATH_PLAN_TOLERANCE", "0..1", "0.01",
		"how much slower a call may be with a plan made for another size, as a fraction. 0: every size is " +
			"planned",
		func(c *Config, v string) error { return setPart(&c.Plan.Tolerance, v) }},
	{"LIGHTPATH_PLAN_INITIAL", "free|current", "free",
		"circuits at which plans begin. free: the planner chooses them, and planes are switched to them " +
			"first. current: those in force. The same on every rank",
		func(c *Config, v string) error {
			initial := "free"
			err := setChoice(&initial, v, "free", "current")
			c.Plan.Current = initial == "current"
			return err
		}},
	{"LIGHTPATH_ALGORITHM", "collective:algorithm,...", "",
		"algorithms to use instead of the chosen ones, as allreduce:ring,alltoall:bruck,allgather:msccl:FILE. " +
			"The same on every rank",
		func(c *Config, v string) error { return c.SetAlgorithms(v) }},
	{"LIGHTPATH_DEMAND", "spectra|plain|off", DemandSpectra,
		"grouped sends and receives of all ranks on circuits. spectra: SPECTRA schedules them. plain: in " +
			"order of distance. With circuits that do not move, such as pinned ones, both use these. off: they use " +
			"packet planes",
		func(c *Config, v string) error {
			return setChoice(&c.Demand.Method, v, DemandSpectra, DemandPlain, DemandOff)
		}},
	{"LIGHTPATH_DEMAND_WAIT", "duration", "10ms",
		"how long a group of sends and receives waits for the groups of the other ranks before it uses packet " +
			"planes",
		func(c *Config, v string) error { return setDuration(&c.Demand.Wait, v) }},
	{"LIGHTPATH_ITERATION", "auto|off", IterationAuto,
		"operations on circuits that repeat, as those of a training loop. auto: they are planned together, planes switch " +
			"between calls, and tickets go out before the call. off: each call by itself",
		func(c *Config, v string) error { return setChoice(&c.Iteration, v, IterationAuto, IterationOff) }},
	{"LIGHTPATH_NCCL_FALLBACK_LIB", "path", "",
		"another libnccl.so.2, for calls that Lightpath does not execute (interposer.md)",
		func(c *Config, v string) error { c.Other.library = v; return nil }},
	{"LIGHTPATH_FALLBACK", "auto|interpose|all|none", "auto",
		"calls that the other library gets. auto: calls with streams or device memory. interpose: the same, " +
			"but planned collectives as sends and receives. all: every call. none: no call. interpose must be the " +
			"same on every rank",
		// The front reads this variable itself. It refuses invalid values only if another library is set.
		func(c *Config, v string) error {
			fallback := "auto"
			err := setChoice(&fallback, v, "auto", "interpose", "all", "none")
			c.Other.Interpose = v == "interpose"
			return err
		}},
	{"LIGHTPATH_INTERPOSE_NETS", "name,...", "",
		"with LIGHTPATH_FALLBACK=interpose: the other library's network for each plane with circuits, in " +
			"plane order. Required with several planes. The same on every rank",
		func(c *Config, v string) error { return c.setNets(v) }},
	{"LIGHTPATH_TIMEOUT", "duration", "10m",
		"longest wait without progress, when communicators are made and in calls",
		func(c *Config, v string) error { return setDuration(&c.Timeout, v) }},
	{"LIGHTPATH_HEARTBEAT", "duration", "10s",
		"time without an answer from a rank's host on any tcp plane or the control network after which the rank is " +
			"lost. A plane without answers is left before that. 2s to 24h; 0: no heartbeats, and a plane that breaks " +
			"ends the communicator",
		func(c *Config, v string) error { return c.setHeartbeat(v) }},
	{"LIGHTPATH_DEVICE_PATH", "auto|direct|rdma|staged", DevicePathAuto,
		"how ranks exchange device memory. direct: devices of one host that reach each other's memory. rdma: " +
			"RDMA ports, or devices of a network plugin, that reach it (GPUDirect). staged: through host memory. auto: " +
			"the first that is possible and that no variable of NCCL forbids; staged if planes have circuits. The same on " +
			"every rank",
		func(c *Config, v string) error {
			return setChoice(&c.Device.Path, v, DevicePathAuto, DevicePathDirect, DevicePathRDMA, DevicePathStaged)
		}},
	{"LIGHTPATH_DEVICE_EXCHANGE", "bytes 1M..4G|auto", "auto",
		"device memory that each rank of a communicator reserves for the direct and rdma paths. auto: 32M for " +
			"rdma; for direct, a share of 1/128 of the device's memory for all ranks together, at least 32M for each. " +
			"The same on every rank",
		func(c *Config, v string) error {
			if v == "auto" {
				c.Device.Exchange = 0
				return nil
			}
			return setBytes(&c.Device.Exchange, v, 1<<20, 4<<30)
		}},
	{"LIGHTPATH_DEVICE_REGISTER", "recurring|explicit", RegisterRecurring,
		"what device memory other ranks of the host use in place. recurring: also allocations that a second call " +
			"uses. explicit: only memory that the program has registered, or got from ncclMemAlloc",
		func(c *Config, v string) error {
			return setChoice(&c.Device.Register, v, RegisterRecurring, RegisterExplicit)
		}},
	{"LIGHTPATH_SPIN", "int", "-1",
		"polls without progress before a waiting rank yields and sleeps. -1: chosen from cores and ranks",
		func(c *Config, v string) error { return setInt(&c.Spin, v, -1, 1<<30) }},
	{"LIGHTPATH_LARGE_PAGES", "0|1", "1",
		"1: buffers of 2 MiB and more that calls over shared memory use repeatedly move to large pages " +
			"(MADV_COLLAPSE)",
		func(c *Config, v string) error { return setBool(&c.LargePages, v) }},
	{"LIGHTPATH_CPU_SPREAD", "0|1", "1",
		"1: a rank on shared memory that shares a CPU with a peer moves to an idle CPU that its thread may " +
			"use. The thread's CPU mask is the same afterwards. 0: ranks never move",
		func(c *Config, v string) error { return setBool(&c.CPUSpread, v) }},
	{"LIGHTPATH_FAULT", "fault,...", "",
		"faults to inject for tests: skip-drain:PLANE:EPOCH, plan-delay:DURATION",
		func(c *Config, v string) error { return setFault(&c.Fault, v) }},
	{"LIGHTPATH_TRACE", "path", "",
		"file that gets one JSON line per program made: algorithm, planner, prediction (%h host, %p process, " +
			"%r rank)",
		func(c *Config, v string) error { c.Trace = v; return nil }},
	{"LIGHTPATH_FLIGHT_RECORDER", "int 0..65536", "256",
		"operations that each communicator records with their times, for lightpath ranks and " +
			"LIGHTPATH_FLIGHT_RECORDER_DIR. 0: no times, no files",
		func(c *Config, v string) error { return setInt(&c.Flight.Recorder, v, 0, 1<<16) }},
	{"LIGHTPATH_FLIGHT_RECORDER_DIR", "path", "",
		"directory in which a communicator that fails writes its flight record, one file per rank. Empty: no " +
			"files",
		func(c *Config, v string) error { c.Flight.Dir = v; return nil }},
	{"LIGHTPATH_METRICS", "path|json:path", "",
		"directory in which each process writes what its ranks have done, every 10 s and when a communicator ends: " +
			"lightpath-HOST-PID.prom for node_exporter's textfile collector; with json: lightpath-HOST-PID.jsonl. Empty: " +
			"no files",
		func(c *Config, v string) error { return c.Metrics.set(v) }},
	{"LIGHTPATH_STATUS_DIR", "path|off", "$XDG_RUNTIME_DIR/lightpath, else /tmp/lightpath-UID",
		"directory of the sockets that lightpath ranks connects to, mode 0700. off: no sockets",
		func(c *Config, v string) error { c.Status.Dir = v; return nil }},
	{"NCCL_RAS_ENABLE", "0|1", "1",
		"1: the first process of a host serves NCCL's RAS protocol for all processes of its user",
		func(c *Config, v string) error { return setBool(&c.Status.RAS, v) }},
	{"NCCL_RAS_ADDR", "host:port", status.DefaultRASAddress,
		"address of the RAS server",
		func(c *Config, v string) error { c.Status.RASAddr = v; return nil }},
	{"NCCL_DEBUG", "VERSION|WARN|INFO|TRACE", "",
		"level of the log, as in NCCL. Other words count as WARN. Warnings about planes that are not used appear at " +
			"every level: below WARN once, on standard error",
		func(c *Config, v string) error { c.Log.Level = log.Warn; return c.Log.Level.Set(v) }},
	{"NCCL_DEBUG_FILE", "path", "standard output",
		"file of the log (%h host, %p process)",
		func(c *Config, v string) error { c.Log.File = v; return nil }},
	{"NCCL_DEBUG_SUBSYS", "list", "INIT,BOOTSTRAP,ENV",
		"subsystems whose INFO lines are logged; ALL for all, ^ to exclude",
		func(c *Config, v string) error { c.Log.Subsystems = v; return nil }},
	{"NCCL_DEBUG_TIMESTAMP_FORMAT", "strftime", "[%F %T] ",
		"format of the time that begins log lines: strftime, and %1f to %9f for fractions of a second",
		func(c *Config, v string) error { return c.Log.Times.SetFormat(v) }},
	{"NCCL_DEBUG_TIMESTAMP_LEVELS", "list", "WARN",
		"levels whose lines begin with a time: VERSION, WARN, INFO, TRACE or ALL, ^ to exclude",
		func(c *Config, v string) error { return c.Log.Times.SetLevels(v) }},
	{"NCCL_SOCKET_IFNAME", "list", "",
		"interfaces for rendezvous, control and tcp planes: prefixes, =exact names, or ^ to exclude. tcp " +
			"planes use them in turn, in this order",
		func(c *Config, v string) error { c.Sockets.If = v; return nil }},
	{"NCCL_OOB_NET_IFNAME", "list", "",
		"interfaces for rendezvous and control, instead of NCCL_SOCKET_IFNAME",
		func(c *Config, v string) error { c.Sockets.OOBIf = v; return nil }},
	{"NCCL_IB_HCA", "list", "",
		"RDMA devices: prefixes, =exact names, or ^ to exclude, each device[:port[:rail[:plane]]]. Devices " +
			"without a plane are assigned to planes in turn. If a plane has several, local ranks use them in " +
			"turn, by rail",
		func(c *Config, v string) (err error) { c.IB.HCAs, err = topology.ParseHCAs(v); return err }},
	{"LIGHTPATH_RDMA_MODE", "auto|rc|uc", RDMAAuto,
		"queue pairs of RDMA planes. rc: with acknowledgements. uc: without, for one-way circuits. auto: uc " +
			"on circuits that are not duplex, else rc. The same on every rank",
		func(c *Config, v string) error { return setChoice(&c.IB.Mode, v, RDMAAuto, RDMARC, RDMAUC) }},
	{"NCCL_IB_GID_INDEX", "int", "-1",
		"entry of an RDMA port's GID table. -1: RoCEv2 with an IPv4 address before others",
		func(c *Config, v string) error { return setInt(&c.IB.GIDIndex, v, -1, 255) }},
	{"NCCL_IB_TIMEOUT", "int 1..31", "18",
		"how long an RDMA packet waits for its acknowledgement: 4.096 us times two to this power",
		func(c *Config, v string) error { return setInt(&c.IB.Timeout, v, 1, 31) }},
	{"NCCL_IB_RETRY_CNT", "int 0..7", "6",
		"how often an RDMA packet is sent again before its plane fails. Some devices read 7 as without limit",
		func(c *Config, v string) error { return setInt(&c.IB.Retries, v, 0, 7) }},
	{"NCCL_IB_TC", "int", "0",
		"traffic class of RDMA packets",
		func(c *Config, v string) error { return setInt(&c.IB.TrafficClass, v, 0, 255) }},
	{"NCCL_IB_SL", "int", "0",
		"service level of RDMA packets",
		func(c *Config, v string) error { return setInt(&c.IB.ServiceLevel, v, 0, 15) }},
	{"NCCL_NET", "IB|Socket|name", "",
		"network between hosts, with LIGHTPATH_TRANSPORT=auto. IB: RDMA ports. Socket: tcp, the default. Another name: " +
			"the network plugin of this name. The same on every rank",
		func(c *Config, v string) error { return c.setNet(v) }},
	{"NCCL_NET_PLUGIN", "name,...|none", "libnccl-net.so",
		"network plugins, of which a communicator uses the first that works. A path, a file name, or NAME for " +
			"libnccl-net-NAME.so. Only the transport net uses plugins",
		func(c *Config, v string) error { c.Plugins.Net = v; return nil }},
	{"NCCL_PROFILER_PLUGIN", "name|none", "",
		"profiler plugin that is told of calls: a path, a file name, or NAME for libnccl-profiler-NAME.so. Short calls " +
			"take longer",
		func(c *Config, v string) error { c.Plugins.Profiler = v; return nil }},
	{"NCCL_TUNER_PLUGIN", "name|none", "libnccl-tuner.so",
		"tuner plugin that chooses algorithms on packet planes: a path, a file name, or NAME for libnccl-tuner-NAME.so. " +
			"Rank 0 asks it when a communicator is made. LIGHTPATH_ALGORITHM goes before it",
		func(c *Config, v string) error { c.Plugins.Tuner = v; return nil }},
	{"NCCL_SHM_DISABLE", "int", "0",
		"1: processes share no memory, with LIGHTPATH_TRANSPORT=auto. The same on every rank",
		func(c *Config, v string) error { return ban(&c.NCCL.NoShared, "NCCL_SHM_DISABLE", v, isOne) }},
	{"NCCL_IB_DISABLE", "int", "0",
		"other than 0: refuses NCCL_NET=IB. RDMA ports that LIGHTPATH_TRANSPORT or a fabric file names are " +
			"used",
		func(c *Config, v string) error { return ban(&c.NCCL.NoRDMA, "NCCL_IB_DISABLE", v, nonZero) }},
	{"NCCL_P2P_DISABLE", "int", "0",
		"1: disables the direct path, with LIGHTPATH_DEVICE_PATH=auto. If one rank disables it, all ranks do",
		func(c *Config, v string) error { return ban(&c.NCCL.NoDirect, "NCCL_P2P_DISABLE", v, isOne) }},
	{"NCCL_P2P_LEVEL", "LOC|NVL|...|SYS, int", "",
		"LOC or 0: as NCCL_P2P_DISABLE=1. Other distances allow the direct path",
		func(c *Config, v string) error { return banBelow(&c.NCCL.NoDirect, "NCCL_P2P_LEVEL", v, "NVL") }},
	{"NCCL_NET_GDR_LEVEL", "LOC|...|PIX|...|SYS, int", "",
		"0 and levels below PIX: disables the rdma path (GPUDirect), with LIGHTPATH_DEVICE_PATH=auto. Other " +
			"distances allow it. If one rank disables it, all ranks do",
		func(c *Config, v string) error {
			return banBelow(&c.NCCL.NoRemote, "NCCL_NET_GDR_LEVEL", v, "PIX")
		}},
	{"NCCL_NET_GDR_READ", "int", "",
		"0: disables the rdma path, as NCCL_NET_GDR_LEVEL=0",
		func(c *Config, v string) error { return ban(&c.NCCL.NoRemote, "NCCL_NET_GDR_READ", v, isZero) }},
	{"NCCL_DMABUF_ENABLE", "int", "1",
		"0: disables the rdma path, as NCCL_NET_GDR_LEVEL=0, because ports reach device memory by dma-buf",
		func(c *Config, v string) error { return ban(&c.NCCL.NoRemote, "NCCL_DMABUF_ENABLE", v, isZero) }},
	{"NCCL_COMM_ID", "host:port", "",
		"rendezvous address to use instead of one that ncclGetUniqueId chooses",
		func(c *Config, v string) error { c.Sockets.CommID = v; return nil }},
}

// Vars lists every variable that Lightpath reads, for `doctor --env`, ncclParamBind and documentation.
func Vars() []Var { return slices.Concat(vars, frontVars) }

// environment returns all variables, as os.Environ does.
var environment atomic.Pointer[func() []string]

// UseEnvironment sets the function that returns all variables. A host program that is not Go may have set variables
// since its start, which os.Environ does not show. If a variable has several entries, the first counts.
func UseEnvironment(all func() []string) { environment.Store(&all) }

// Load reads the environment. An unusable value is an error that names its variable, with two exceptions, which become
// [Config.Warnings]: variables of the log, which must not end a job, and variables for which NCCL then uses its
// default.
func Load() (*Config, error) {
	all := os.Environ
	if p := environment.Load(); p != nil {
		all = *p
	}
	values := map[string]string{}
	for _, entry := range all() {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := values[name]; !twice {
			values[name] = value
		}
	}
	c, err := load(func(name string) string { return values[name] })
	if err != nil {
		return nil, err
	}
	c.noteVariables(values)
	return c, nil
}

// noteVariables records the variables of NCCL and Lightpath that are set, for the log, and says which have no effect.
func (c *Config) noteVariables(values map[string]string) {
	for name, value := range values {
		if value == "" || !strings.HasPrefix(name, "NCCL_") && !strings.HasPrefix(name, "LIGHTPATH_") {
			continue
		}
		known := slices.ContainsFunc(Vars(), func(v Var) bool { return v.Name == name })
		line := fmt.Sprintf("%s set by environment to %s.", name, value)
		if !known {
			line = fmt.Sprintf("%s set by environment to %s: ignored, %s.", name, value, whyIgnored(name))
		}
		if !known && misspelt(name) {
			c.warnings = append(c.warnings, line)
			continue
		}
		c.variables = append(c.variables, line)
	}
	slices.Sort(c.variables)
	slices.Sort(c.warnings)
}

// misspelt reports whether an unknown variable looks like one of Lightpath's. Variables of tests and scripts do not.
func misspelt(name string) bool {
	return strings.HasPrefix(name, "LIGHTPATH_") && !strings.HasPrefix(name, "LIGHTPATH_TEST_") &&
		!slices.Contains(scriptVars, name)
}

// scriptVars are read by scripts of the project, not by the library.
var scriptVars = []string{"LIGHTPATH_DIST", "LIGHTPATH_NCCL_PACKAGE", "LIGHTPATH_PICTURES", "LIGHTPATH_REAL_NCCL"}

// Of reads variables from pairs of names and values instead of the environment.
func Of(pairs ...string) (*Config, error) {
	return load(func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	})
}

func load(getenv func(string) string) (*Config, error) {
	c := &Config{FabricRank: -1, LauncherRank: -1, Status: Status{RuntimeDir: getenv("XDG_RUNTIME_DIR")}}
	for _, v := range vars {
		if v.Default != "" && !slices.Contains(inWords, v.Name) {
			if err := v.set(c, v.Default); err != nil {
				return nil, fmt.Errorf("shim: default of %s: %w: %w", v.Name, err, errdefs.ErrInternal)
			}
		}
		value := strings.TrimSpace(getenv(v.Name))
		if value == "" {
			continue
		}
		err := v.set(c, value)
		var vain notUsed
		if err != nil && (strings.HasPrefix(v.Name, "NCCL_DEBUG") || errors.As(err, &vain)) {
			c.warnings = append(c.warnings, fmt.Sprintf("environment variable %s: %v: not used.", v.Name, err))
		} else if err != nil {
			return nil, fmt.Errorf("shim: environment variable %s: %w: %w", v.Name, err, errdefs.ErrInvalidUsage)
		}
	}
	for _, name := range launcherRanks {
		// A launcher's variable is a hint and no setting of Lightpath, so an invalid value is no error.
		if n, err := strconv.Atoi(getenv(name)); err == nil && n >= 0 {
			c.LauncherRank = n
			break
		}
	}
	c.Other.Interpose = c.Other.Interpose && c.Other.library != ""
	return c, c.settle()
}
