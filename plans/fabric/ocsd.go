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
	DataPlane string                // a DataPlane constant; "": see [OCSD.Plane]
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

// What carries the data of the planes.
const (
	// DataMemory: circuits in the controller's memory.
	DataMemory = "memory"
	// DataKernel: circuits in the kernel, built by `lightpath fabric up`.
	DataKernel = "kernel"
	// DataNone: real planes; the controller only moves their switches.
	DataNone = "none"
)

// Where the controller's state is kept.
const (
	// JournalFile: in a file of this host, which survives kills and power cuts.
	JournalFile = "file"
	// JournalEtcd: in etcd, where a controller on another host can take over.
	JournalEtcd = "etcd"
	// JournalMemory: nowhere else than in the controller, whose restart forgets it: for planes that are
	// emulated, in tests and measurements.
	JournalMemory = "memory"
)

// JournalConfig says where the controller's state outlives it.
type JournalConfig struct {
	Kind      string   // a Journal constant; "": see [OCSD.JournalKind]
	Endpoints []string // of etcd; nil: a server inside the controller
	Dir       string   // of the file, or of that server's data
	Prefix    string   // of every key; "" is /lightpath/
	Lease     time.Duration
	TLS       TLS
}

// SwitchesConfig says how real switches are driven.
type SwitchesConfig struct {
	Verify        string // a name of driver.Level; "" is light
	DriftInterval time.Duration
	Settle        time.Duration
	ReplyTimeout  time.Duration
	InsecureSCPI  bool // SCPI may leave this host
	User          string
	PasswordFile  string
	KnownHosts    string
	TLS           TLS
}

// DeviceConfig describes the model behind kernel planes.
type DeviceConfig struct {
	Preset string // "": the fabric's reconfiguration time exactly
	Faults string // file of a fault script
	Seed   int
}

// Bounds of [OCSD.MTU] and [OCSD.Slots].
const (
	MinMTU   = 65 // a label of 64 bytes and one of data
	MaxMTU   = 1 << 22
	MinSlots = 2 // forwarding needs two: the bubble rule
	MaxSlots = 1 << 14
)

// DecodeOCSD reads the configuration of the emulated switch, as strictly as [Decode].
// Paths are left as they are written.
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
	err = root.object(o.field)
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

func (o *OCSD) field(key string, v value) error {
	switch key {
	case "version":
		return v.integer(&o.Version, Version, Version)
	case "name":
		return v.text(&o.Name)
	case "fabric":
		return v.text(&o.Fabric)
	case "data_plane":
		return v.oneOf(&o.DataPlane, DataMemory, DataKernel, DataNone)
	case "socket":
		return v.text(&o.Socket)
	case "frame_log":
		return v.text(&o.FrameLog)
	case "mtu":
		return v.integer(&o.MTU, MinMTU, MaxMTU)
	case "slots":
		return v.integer(&o.Slots, MinSlots, MaxSlots)
	case "initial":
		return v.list(func(_ int, at value) error {
			m := circuit.Permutation{}
			err := at.list(func(_ int, port value) error {
				m = append(m, circuit.Dark)
				return port.integer(&m[len(m)-1], circuit.Dark, plans.MaxRanks-1)
			})
			o.Initial = append(o.Initial, m)
			return err
		})
	case "listen":
		return v.address(&o.Listen)
	case "http":
		return v.address(&o.HTTP)
	case "tls":
		return v.object(o.TLS.field)
	case "journal":
		return v.object(o.Journal.field)
	case "switches":
		return v.object(o.Switches.field)
	case "device":
		return v.object(o.Device.field)
	}
	return errUnknown
}

// JournalKind is the kind of the journal. Where the file does not say, the state of real switches is kept in
// a file, and that of emulated planes in memory: their circuits are emulated anew.
func (o *OCSD) JournalKind() string {
	switch {
	case o.Journal.Kind != "":
		return o.Journal.Kind
	case o.DataPlane == DataNone:
		return JournalFile
	}
	return JournalMemory
}

func (j *JournalConfig) field(key string, v value) error {
	switch key {
	case "kind":
		return v.oneOf(&j.Kind, JournalFile, JournalEtcd, JournalMemory)
	case "endpoints":
		return v.list(func(_ int, v value) error {
			var e string
			err := v.text(&e)
			j.Endpoints = append(j.Endpoints, e)
			return err
		})
	case "dir":
		return v.text(&j.Dir)
	case "prefix":
		return v.text(&j.Prefix)
	case "lease":
		return v.atLeast(&j.Lease, time.Second)
	}
	return j.TLS.field(key, v)
}

func (s *SwitchesConfig) field(key string, v value) error {
	switch key {
	case "verify":
		return v.oneOf(&s.Verify, "read-back", "status", "light", "token")
	case "drift_interval":
		return v.atLeast(&s.DriftInterval, 10*time.Millisecond)
	case "settle":
		return v.atLeast(&s.Settle, time.Millisecond)
	case "reply_timeout":
		return v.atLeast(&s.ReplyTimeout, time.Millisecond)
	case "insecure_scpi":
		return v.boolean(&s.InsecureSCPI)
	case "user":
		return v.text(&s.User)
	case "password_file":
		return v.text(&s.PasswordFile)
	case "known_hosts":
		return v.text(&s.KnownHosts)
	}
	return s.TLS.field(key, v)
}

func (d *DeviceConfig) field(key string, v value) error {
	switch key {
	case "preset":
		return v.text(&d.Preset)
	case "faults":
		return v.text(&d.Faults)
	case "seed":
		return v.integer(&d.Seed, 0, 1<<31-1)
	}
	return errUnknown
}

// oneOf reads one of some words into to.
func (v value) oneOf(to *string, words ...string) error {
	if err := v.text(to); err != nil {
		return err
	}
	if !slices.Contains(words, *to) {
		return v.errorf("%q is not one of %s", *to, strings.Join(words, ", "))
	}
	return nil
}

// atLeast reads a duration that must not be too short to make sense.
func (v value) atLeast(to *time.Duration, least time.Duration) error {
	if err := v.duration(to); err != nil {
		return err
	}
	if *to < least {
		return v.errorf("%v is less than %v", *to, least)
	}
	return nil
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

// LoadOCSD reads the configuration at path and the fabric file that it names. Paths in
// the result are relative to the directory of path no more; the socket is the one that the
// fabric names for ranks on its host where the configuration names none.
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
