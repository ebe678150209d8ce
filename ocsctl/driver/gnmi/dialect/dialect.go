package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrMessage reports a value or path that the dialect does not allow, or a message that is too large.
var ErrMessage = errors.New("not what the dialect allows")

// State is the meaning of a switch's word for a state.
type State int

// The states of ports and circuits, the better ones first.
const (
	Unknown State = iota
	Up            // it carries light
	Blocked       // a port without a circuit
	Pending       // on its way
	Leaving       // on its way out
	Failed        // requested and in the table, without light
	Invalid       // accepted as configuration, and refused as a circuit: not in the hardware
)

// Step is one element of a path pattern: the element Name with Keys. If Bind is set, the element may have any name,
// which becomes the value of the variable Bind.
type Step struct {
	Name string
	Bind string
	Keys []Key
}

// Key is a list's key. Its value becomes the value of the variable Bind, unless the pattern requires Value.
type Key struct {
	Name, Bind, Value string
	Number            bool // in JSON
}

// Field is a leaf below an entry, with the name of its variable in a record.
type Field struct {
	Path   string // element names, joined by slashes
	Bind   string
	Number bool // in JSON
}

// Table is one list of a switch. Its records have the variables that Entry and Fields bind.
type Table struct {
	Entry  []Step
	Fields []Field
	Read   int              // number of elements of Entry in the path for reading the list
	Module string           // of the list, where JSON names it
	Words  map[State]string // of the fields status, in.status, out.status
}

// The variables of circuits: id; in, out and peer are ports; a port is one variable, or two
// with the suffixes .slot and .port; status, or in.status and out.status; reason. Of ports:
// port, peer, status, input, output (power in dBm). Of the system: vendor, model, serial, software.

// Dialect is one draft. Values are read-only.
type Dialect struct {
	Name   string
	Origin string   // of every path
	Models []string // models in Capabilities that announce it
	// Config has the requested circuits, which clients write. Status has the circuits that the switch reports; without
	// an Entry, the states of their ports stand for them.
	Config, Status, Ports, System Table
	Slotted                       bool // ports are a slot and a number in it
	Power                         bool // Ports has power
	OneRoot                       bool // the paths of a request begin with the same element
	Roles                         bool // masters are arbitrated by role
	// SetTime is the longest time of a Set, if it is longer than that of other requests; else 0.
	SetTime time.Duration
}

// idSeparator stands between the ports of a new circuit's id.
const idSeparator = "-"

// Lookup returns the dialect with a name; "" stands for the first of Names.
func Lookup(name string) (*Dialect, error) {
	if name == "" {
		name = names[0]
	}
	for i := range dialects {
		if dialects[i].Name == name {
			return &dialects[i], nil
		}
	}
	return nil, fmt.Errorf("gnmi: there is no dialect %q, only %s", name, strings.Join(names, ", "))
}

// Names lists the dialects, the default first.
func Names() []string { return append([]string(nil), names...) }

// ByModels returns the dialect of a switch with these models, nil if none is known.
func ByModels(models []string) *Dialect {
	for i := range dialects {
		for _, known := range dialects[i].Models {
			if slices.Contains(models, known) {
				return &dialects[i]
			}
		}
	}
	return nil
}

// Normal returns a port's label in the one form that records have: in a slotted dialect a label
// without a slot is in slot 1.
func (d *Dialect) Normal(label string) string {
	if d.Slotted && !strings.Contains(label, "/") {
		return "1/" + label
	}
	return label
}

// Vars returns the variables of a circuit between two ports.
func (d *Dialect) Vars(id, in, out string) map[string]string {
	if id == "" {
		id = in + idSeparator + out
	}
	v := map[string]string{"id": id, "in": in, "out": out}
	d.split(v, "in", in)
	d.split(v, "out", out)
	return v
}

// PortVars returns the variables of a port; peer is "" if it has none.
func (d *Dialect) PortVars(port, peer string) map[string]string {
	v := map[string]string{"port": port}
	d.split(v, "port", port)
	if peer != "" {
		v["peer"] = peer
		d.split(v, "peer", peer)
	}
	return v
}

func (d *Dialect) split(v map[string]string, name, label string) {
	if !d.Slotted {
		return
	}
	slot, port, _ := strings.Cut(d.Normal(label), "/")
	v[name+".slot"], v[name+".port"] = slot, port
}

// port returns a port's label from the variables of a record, "" if there is none.
func port(v map[string]string, name string) string {
	if label, ok := v[name]; ok {
		return label
	}
	if slot, ok := v[name+".slot"]; ok && v[name+".port"] != "" {
		return slot + "/" + v[name+".port"]
	}
	return ""
}

// meaning returns the state for a word of the table. It ignores case and the prefix of a module.
func (t *Table) meaning(word string) State {
	if i := strings.LastIndexByte(word, ':'); i >= 0 {
		word = word[i+1:]
	}
	for s, w := range t.Words {
		if strings.EqualFold(w, word) {
			return s
		}
	}
	return Unknown
}
