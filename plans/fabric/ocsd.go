package fabric

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// OCSD is the configuration of the controller: `lightpath ocsd --config`. docs/fabric.md has an
// example of every field. Zero values stand for fields that are not given.
type OCSD struct {
	Version   int
	Name      string                // of this controller among several
	Fabric    string                // the fabric whose planes it controls
	DataPlane string                // a DataPlane constant; "": what suits the switches
	Socket    string                // what ranks on this host connect to
	FrameLog  string                // memory planes: every frame and switch
	MTU       int                   // memory planes: most bytes of a frame with its label
	Slots     int                   // memory planes: frames per port ring
	Initial   []circuit.Permutation // emulated planes: map of each at the start; nil: dark
	Listen    string                // host:port for gRPC
	HTTP      string                // host:port for the page and metrics
	TLS       TLS                   // of both
	Journal   JournalConfig
	Switches  SwitchesConfig
	Device    DeviceConfig
}

// Data planes: what carries frames.
const (
	// DataMemory: circuits in the controller's memory.
	DataMemory = "memory"
	// DataKernel: circuits in the kernel, built by `lightpath fabric up`.
	DataKernel = "kernel"
	// DataNone: real planes; the controller only moves their switches.
	DataNone = "none"
)

// Journals: where the controller stores its state.
const (
	// JournalFile: in a file of this host, which survives kills and power cuts.
	JournalFile = "file"
	// JournalEtcd: in etcd, where a controller on another host can take over.
	JournalEtcd = "etcd"
	// JournalMemory: only in the controller's memory, so a restart loses it. For emulated planes, in tests and
	// measurements.
	JournalMemory = "memory"
)

// JournalConfig configures the journal, which keeps the controller's state over restarts.
type JournalConfig struct {
	Kind      string   // a Journal constant; "": see [OCSD.JournalKind]
	Endpoints []string // of etcd; nil: a server inside the controller
	Dir       string   // of the file, or of that server's data
	Prefix    string   // of every key; "" is /lightpath/
	Lease     time.Duration
	TLS       TLS
}

// SwitchesConfig configures the drivers of real switches.
type SwitchesConfig struct {
	Verify        string // a name of driver.Level; "" is light
	DriftInterval time.Duration
	Settle        time.Duration
	ReplyTimeout  time.Duration
	PowerDrop     float64 // loss of received power in dB that is an event; 0: the default
	InsecureSCPI  bool    // SCPI may leave this host
	User          string
	PasswordFile  string
	KnownHosts    string
	TLS           TLS
}

// DeviceConfig configures the model of the switch behind kernel planes.
type DeviceConfig struct {
	Preset string // "": the fabric's reconfiguration time exactly
	Faults string // file of a fault script
	Seed   int
}

// Bounds of [OCSD.MTU] and [OCSD.Slots].
const (
	minMTU   = 65 // a label of 64 bytes and one of data
	maxMTU   = 1 << 22
	minSlots = 2 // forwarding needs two: the bubble rule
	maxSlots = 1 << 14
)

// DecodeOCSD reads the configuration of a controller, as strictly as [Decode]. Paths are not resolved.
func DecodeOCSD(data []byte) (*OCSD, error) {
	o, err := decodeOCSD(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFabric, err)
	}
	return o, nil
}

func decodeOCSD(data []byte) (*OCSD, error) {
	root, err := parse(data)
	if err != nil {
		return nil, err
	}
	var o OCSD
	err = root.read(o.into())
	switch {
	case err != nil:
		return nil, err
	case o.Version == 0:
		return nil, value{node: root.node, path: "version"}.errorf("%w", errMissing)
	case o.Fabric == "":
		return nil, value{node: root.node, path: "fabric"}.errorf("%w", errMissing)
	}
	return &o, nil
}

func (o *OCSD) into() fields {
	j, s, d := &o.Journal, &o.Switches, &o.Device
	return fields{
		"version":    integer(&o.Version, Version, Version),
		"name":       &o.Name,
		"fabric":     &o.Fabric,
		"data_plane": oneOf(&o.DataPlane, DataMemory, DataKernel, DataNone),
		"socket":     &o.Socket,
		"frame_log":  &o.FrameLog,
		"mtu":        integer(&o.MTU, minMTU, maxMTU),
		"slots":      integer(&o.Slots, minSlots, maxSlots),
		"initial": listOf(func(at value) error {
			m := circuit.Permutation{}
			err := at.list(func(_ int, port value) error {
				m = append(m, circuit.Dark)
				return port.integer(&m[len(m)-1], circuit.Dark, plans.MaxRanks-1)
			})
			o.Initial = append(o.Initial, m)
			return err
		}),
		"listen": func(v value) error { return v.address(&o.Listen) },
		"http":   func(v value) error { return v.address(&o.HTTP) },
		"tls":    o.TLS.into(),
		"journal": j.TLS.into().and(fields{
			"kind":      oneOf(&j.Kind, JournalFile, JournalEtcd, JournalMemory),
			"endpoints": texts(&j.Endpoints, value.text),
			"dir":       &j.Dir,
			"prefix":    &j.Prefix,
			"lease":     atLeast(&j.Lease, time.Second),
		}),
		"switches": s.TLS.into().and(fields{
			"verify":         oneOf(&s.Verify, "read-back", "status", "light", "token"),
			"drift_interval": atLeast(&s.DriftInterval, 10*time.Millisecond),
			"settle":         atLeast(&s.Settle, time.Millisecond),
			"reply_timeout":  atLeast(&s.ReplyTimeout, time.Millisecond),
			"power_drop_db":  func(v value) error { return v.number(&s.PowerDrop, 0.5, 30) },
			"insecure_scpi":  &s.InsecureSCPI,
			"user":           &s.User,
			"password_file":  &s.PasswordFile,
			"known_hosts":    &s.KnownHosts,
		}),
		"device": fields{"preset": &d.Preset, "faults": &d.Faults, "seed": integer(&d.Seed, 0, 1<<31-1)},
	}
}

// JournalKind returns the kind of the journal. The default is a file for real switches, and memory for emulated planes,
// whose circuits a restart makes anew.
func (o *OCSD) JournalKind() string {
	switch {
	case o.Journal.Kind != "":
		return o.Journal.Kind
	case o.DataPlane == DataNone:
		return JournalFile
	}
	return JournalMemory
}

// oneOf returns a function that reads one of the words.
func oneOf(to *string, words ...string) func(value) error {
	return func(v value) error {
		if err := v.text(to); err != nil {
			return err
		}
		if !slices.Contains(words, *to) {
			return v.errorf("%q is not one of %s", *to, strings.Join(words, ", "))
		}
		return nil
	}
}

// atLeast returns a function that reads a duration of at least least.
func atLeast(to *time.Duration, least time.Duration) func(value) error {
	return func(v value) error {
		if err := v.duration(to); err != nil {
			return err
		}
		if *to < least {
			return v.errorf("%v is less than %v", *to, least)
		}
		return nil
	}
}

// Encode writes o as a file that [DecodeOCSD] reads back.
func (o *OCSD) Encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "version: %d\nfabric: %s\n", o.Version, quote(o.Fabric))
	for _, f := range []struct{ name, value string }{
		{"name", o.Name}, {"data_plane", o.DataPlane}, {"socket", o.Socket}, {"frame_log", o.FrameLog},
		{"listen", o.Listen}, {"http", o.HTTP},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, "%s: %s\n", f.name, quote(f.value))
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"mtu", o.MTU}, {"slots", o.Slots}} {
		if f.value != 0 {
			fmt.Fprintf(&b, "%s: %d\n", f.name, f.value)
		}
	}
	if o.Initial != nil {
		b.WriteString("initial:\n")
		for _, m := range o.Initial {
			text, _ := json.Marshal(m) // integers always encode
			fmt.Fprintf(&b, "  - %s\n", text)
		}
	}
	group := func(name, fields string) {
		if fields != "" {
			fmt.Fprintf(&b, "%s: {%s}\n", name, strings.TrimPrefix(fields, ", "))
		}
	}
	group("tls", o.TLS.fields())
	j := &o.Journal
	fields := field("kind", j.Kind)
	if j.Endpoints != nil {
		text, _ := json.Marshal(j.Endpoints) // strings cannot fail
		fields += fmt.Sprintf(", endpoints: %s", text)
	}
	group("journal", fields+field("dir", j.Dir)+field("prefix", j.Prefix)+durationField("lease", j.Lease)+j.TLS.fields())
	s := &o.Switches
	fields = field("verify", s.Verify) + durationField("drift_interval", s.DriftInterval) +
		durationField("settle", s.Settle) + durationField("reply_timeout", s.ReplyTimeout)
	if s.PowerDrop != 0 {
		fields += fmt.Sprintf(", power_drop_db: %v", s.PowerDrop)
	}
	if s.InsecureSCPI {
		fields += ", insecure_scpi: true"
	}
	group("switches", fields+field("user", s.User)+field("password_file", s.PasswordFile)+
		field("known_hosts", s.KnownHosts)+s.TLS.fields())
	fields = field("preset", o.Device.Preset) + field("faults", o.Device.Faults)
	if o.Device.Seed != 0 {
		fields += fmt.Sprintf(", seed: %d", o.Device.Seed)
	}
	group("device", fields)
	return []byte(b.String())
}

func durationField(name string, d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(", %s: %s", name, formatDuration(d))
}

// LoadOCSD reads the configuration at path and the fabric file that it names. Relative paths in the result are joined
// to the directory of path. If the configuration names no socket, it is the one that the fabric names for ranks on the
// controller's host.
func LoadOCSD(path string) (*OCSD, *Fabric, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	o, err := DecodeOCSD(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range []*TLS{&o.TLS, &o.Journal.TLS, &o.Switches.TLS} {
		t.beside(path)
	}
	besideFile(path, &o.Fabric, &o.FrameLog, &o.Journal.Dir, &o.Switches.PasswordFile, &o.Switches.KnownHosts,
		&o.Device.Faults)
	f, err := Load(o.Fabric)
	if err != nil {
		return nil, nil, err
	}
	if err := o.adopt(f); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w", path, ErrFabric, err)
	}
	return o, f, nil
}
