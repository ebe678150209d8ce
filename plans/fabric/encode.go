package fabric

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Encode writes f as a fabric file in one canonical layout. [Decode] reads the same fabric
// back.
func (f *Fabric) Encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "version: %d\n", f.Version)
	if f.Name != "" {
		fmt.Fprintf(&b, "name: %s\n", quote(f.Name))
	}
	if f.Hosts != nil {
		b.WriteString("hosts:\n")
		for _, h := range f.Hosts {
			fmt.Fprintf(&b, "  - {name: %s, ranks: %d%s}\n", quote(h.Name), h.Ranks, field("address", h.Address))
		}
	} else {
		fmt.Fprintf(&b, "ranks: %d\n", f.Ranks)
	}
	b.WriteString("planes:\n")
	for _, p := range f.Planes {
		fmt.Fprintf(&b, "  - {name: %s, bandwidth: %v%s", quote(p.Name), p.Bandwidth, field("ocs", p.OCS))
		for rank, port := range p.Ports {
			b.WriteString(map[bool]string{true: ", ports: {", false: ", "}[rank == 0])
			fmt.Fprintf(&b, "%d: %s", rank, quote(port))
		}
		if p.Ports != nil {
			b.WriteString("}")
		}
		if p.Spares != nil {
			text, _ := json.Marshal(p.Spares) // strings cannot fail
			fmt.Fprintf(&b, ", spares: %s", text)
		}
		fmt.Fprintf(&b, "%s%s}\n", field("interface", p.Interface), field("hca", p.HCA))
	}
	if f.OCS != nil {
		b.WriteString("ocs:\n")
	}
	for _, o := range f.OCS {
		fmt.Fprintf(&b, "  - {name: %s, driver: %s%s%s, reconfig: %s", quote(o.Name), o.Driver,
			field("endpoint", o.Endpoint), field("dialect", o.Dialect), formatDuration(o.Reconfig))
		if o.ReconfigPerPort != 0 {
			fmt.Fprintf(&b, ", reconfig_per_port: %s", formatDuration(o.ReconfigPerPort))
		}
		b.WriteString("}\n")
	}
	fmt.Fprintf(&b, "costs: {alpha: %s, hop: %s", formatDuration(f.Costs.Alpha), formatDuration(f.Costs.Hop))
	if f.Costs.Barrier != 0 {
		fmt.Fprintf(&b, ", barrier: %s", formatDuration(f.Costs.Barrier))
	}
	b.WriteString("}\n")
	if p := f.Packets; p.Bandwidth != 0 {
		fmt.Fprintf(&b, "%v\n", p)
	}
	fmt.Fprintf(&b, "circuits: %s\nforwarding: %t\n", f.Circuits, f.Forwarding)
	if f.Pods != nil {
		pods, _ := json.Marshal(f.Pods) // lists of integers: JSON is YAML, and cannot fail
		fmt.Fprintf(&b, "pods: %s\n", pods)
	}
	if f.PinnedBy != "" {
		fmt.Fprintf(&b, "pinned_by: %s\n", quote(f.PinnedBy))
	}
	if c := f.Controller; c.Endpoints != nil {
		endpoints, _ := json.Marshal(c.Endpoints) // strings cannot fail
		fmt.Fprintf(&b, "controller: {endpoints: %s%s}\n", endpoints, c.TLS.fields())
	}
	return []byte(b.String())
}

func (t TLS) fields() string { return field("ca", t.CA) + field("cert", t.Cert) + field("key", t.Key) }

// quote writes s as a double-quoted scalar; JSON strings are YAML strings.
func quote(s string) string {
	text, _ := json.Marshal(s) // a string cannot fail
	return string(text)
}

// field returns the text of an optional field; nothing if s is empty.
func field(name, s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf(", %s: %s", name, quote(s))
}
