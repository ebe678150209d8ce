package fabric

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// OCSD is the configuration of the emulated switch: `lightpath ocsd --config`.
//
//	version: 1
//	fabric: fabric.yaml        # the fabric it emulates; relative to this file
//	socket: /run/ocsd.sock     # what ranks connect to; default: the ocs's endpoint
//	frame_log: frames.log      # optional; relative to this file
//	mtu: 8256                  # most bytes of a frame with its label; optional
//	slots: 64                  # frames per port ring; optional
//	initial: [[1, 0], [-1, -1]] # map of each plane at the start; default: dark
type OCSD struct {
	Version  int
	Fabric   string
	Socket   string                // "" where not given
	FrameLog string                // "" for none
	MTU      int                   // 0 where not given
	Slots    int                   // 0 where not given
	Initial  []circuit.Permutation // nil where not given
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
	err = root.object(func(key string, v value) error {
		switch key {
		case "version":
			return v.integer(&o.Version, Version, Version)
		case "fabric":
			return v.text(&o.Fabric)
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
		}
		return errUnknown
	})
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

// Encode writes o as a file that [DecodeOCSD] reads back.
func (o *OCSD) Encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "version: %d\nfabric: %s\n", o.Version, quote(o.Fabric))
	for _, f := range []struct{ name, value string }{{"socket", o.Socket}, {"frame_log", o.FrameLog}} {
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
	return []byte(b.String())
}

// LoadOCSD reads the configuration at path and the fabric file that it names. Paths in
// the result are relative to the directory of path no more; the socket is that of the
// fabric's first switch where the configuration names none. Every switch of the fabric
// must be an emulator, and all must be this one.
func LoadOCSD(path string) (*OCSD, *Fabric, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	o, err := DecodeOCSD(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, p := range []*string{&o.Fabric, &o.FrameLog} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	f, err := Load(o.Fabric)
	if err != nil {
		return nil, nil, err
	}
	if err := o.adopt(f); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w", path, ErrFabric, err)
	}
	return o, f, nil
}

// adopt checks that this switch can be the one of f, and takes its socket from there.
func (o *OCSD) adopt(f *Fabric) error {
	if !f.Optical() {
		return fmt.Errorf("fabric: %s has no ocs to emulate", o.Fabric)
	}
	for j := range f.Planes {
		s := f.Switch(j)
		socket := strings.TrimPrefix(s.Endpoint, "unix:")
		switch {
		case s.Driver != DriverEmulator:
			return fmt.Errorf("fabric: ocs %q has the driver %s, not emulator", s.Name, s.Driver)
		case o.Socket == "":
			o.Socket = socket
		case socket != "" && socket != strings.TrimPrefix(o.Socket, "unix:"):
			return fmt.Errorf("socket: %s, but ocs %q of %s is at %s", o.Socket, s.Name, o.Fabric, socket)
		}
	}
	if o.Initial != nil && len(o.Initial) != len(f.Planes) {
		return fmt.Errorf("initial: %d maps for %d planes", len(o.Initial), len(f.Planes))
	}
	for j, m := range o.Initial {
		if err := m.Validate(f.Ranks); err != nil {
			return fmt.Errorf("initial[%d]%w", j, err)
		}
	}
	if o.Socket == "" {
		return fmt.Errorf("socket: %w, and %s gives no endpoint", errMissing, o.Fabric)
	}
	return nil
}
