// Package driver is what a controller sees of one real optical circuit switch: its map, the
// health of its ports, and changes to its map with a verdict per circuit. The packages
// below it speak the switches' protocols (scpi, gnmi, netconf) and nothing else: epochs,
// leases and who may write belong to the controller.
//
// Layer: beside ocsctl; it imports plans/circuit only.
package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/plans/circuit"
)

// Errors of drivers; implementations wrap them with the switch and the port or circuit.
var (
	// ErrUnknownOutcome: the switch did not answer in time, and reading its map back did not
	// settle what it did. Nothing may be resumed on its circuits.
	ErrUnknownOutcome = errors.New("outcome of the change is unknown")
	// ErrRefused: the switch or the protocol refused the request; the map is as before.
	ErrRefused = errors.New("refused by the switch")
	// ErrProtocol: the peer said something that is not its protocol, or too much of it.
	ErrProtocol = errors.New("not what the protocol allows")
	// ErrNoAnswer: the switch cannot be reached, or does not answer in time.
	ErrNoAnswer = errors.New("does not answer")
	// ErrUnwell: a port has failed, or a circuit has lost its light.
	ErrUnwell = errors.New("bad port or circuit")
	// ErrFenced: a controller with a higher fencing token has written.
	ErrFenced = errors.New("another controller with a higher token writes this switch")
	// ErrDrift: the switch's map is not the one that the change starts from, because another writer
	// has changed it. The driver asked nothing of the switch.
	ErrDrift = errors.New("the switch's map is not the one that the change starts from")
	// ErrNotAsIntended: the outcome is known, and some circuits are not as asked; the verdicts name
	// them.
	ErrNotAsIntended = errors.New("circuits are not as intended")
	// ErrPorts: the switch answers, and does not have ports that the map needs.
	ErrPorts = errors.New("the switch does not have these ports")
	// ErrNotMatching: the switch reports a map in which a port has two circuits.
	ErrNotMatching = errors.New("the switch reports a map that is no matching")
)

// Level says how far a circuit has been verified; each level implies those below.
type Level int

// The levels of verification.
const (
	Unverified Level = iota
	ReadBack         // the switch's own table has it
	Status           // the switch reports the circuit as up: tuned, connected, no port failed
	Light            // received optical power is there, on the ports that can measure it
	Token            // a token went over the circuit and came out at the right port
)

// String returns the name that reports use.
func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return fmt.Sprintf("level(%d)", int(l))
	}
	return levelNames[l]
}

var levelNames = [...]string{"unverified", "read-back", "status", "light", "token"}

// MarshalText writes the name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the name.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("driver: %q is no level of verification", text)
	}
	*l = Level(i)
	return nil
}

// Ports names a switch's ports: port r of a map sends into In[r] and receives from Out[r],
// in the switch's own words ("1", "17"; "1A", "1B"). Out may be nil: then it is the egress side of
// the same ports, as the protocol names it.
type Ports struct {
	In, Out []string
}

// Change is what is asked of a switch: to go from the map Before, which the caller has
// read, to After. Circuits that both have are not touched; the driver computes the
// difference, deletes first, then makes. Token fences writers where the protocol can.
// A change from a map to the same one asks for nothing and verifies the circuits.
type Change struct {
	Before, After circuit.Permutation
	Token         uint64
	Want          Level // verify to this level, as far as the switch can
	// Check lists the ports whose circuits are verified, besides the ones that the change makes; nil: all.
	Check []bool
}

// Circuit is the verdict on one circuit of a change.
type Circuit struct {
	In       int    `json:"in"`       // port of the map
	Intended int    `json:"intended"` // the port it shall reach, -1 dark
	Accepted bool   `json:"accepted"` // the switch took the request
	Observed int    `json:"observed"` // the port it reaches by read-back, -1 dark
	Verified Level  `json:"verified"`
	Reason   string `json:"reason,omitempty"` // why it is not as intended
	// PowerDBm is what the egress port receives; 0 unless HasPower.
	PowerDBm float64   `json:"power_dbm,omitempty"`
	HasPower bool      `json:"has_power"`
	At       time.Time `json:"at,omitzero"` // when this was seen
}

// Health is what a switch says of one of its ports.
type Health struct {
	Port     string  `json:"port"`
	State    string  `json:"state"`               // the switch's word: TUNED, BLOCKED, ENABLED, ...; "" where it has none
	Failed   bool    `json:"failed"`              // the port cannot carry light
	PowerDBm float64 `json:"power_dbm,omitempty"` // received; 0 unless HasPower
	HasPower bool    `json:"has_power"`
}

// Info identifies a switch.
type Info struct {
	Vendor   string `json:"vendor"`
	Model    string `json:"model"`
	Serial   string `json:"serial"`
	Software string `json:"software"`
	Dialect  string `json:"dialect"`   // of the protocol, where there are several
	CanFence bool   `json:"can_fence"` // the protocol refuses writers with a lower token
	CanState bool   `json:"can_state"` // it says whether circuits are up and ports have failed
	CanLight bool   `json:"can_light"` // it measures the power of at least one egress port
}

// Reaches returns how far the switch can verify a circuit by itself. The driver asks the switch for its abilities; it
// does not derive them from the model's name.
func (i *Info) Reaches() Level {
	switch {
	case i.CanLight:
		return Light
	case i.CanState:
		return Status
	}
	return ReadBack
}

// Switch drives one switch. Methods may be called concurrently; an implementation
// serializes what its protocol cannot overlap. A context bounds each call.
type Switch interface {
	// Info asks the switch who it is.
	Info(ctx context.Context) (Info, error)
	// Read returns the whole map as the switch has it now. ErrNotMatching where a port has
	// two circuits; circuits of ports that Ports does not name are ignored.
	Read(ctx context.Context) (circuit.Permutation, error)
	// Apply makes a change and verifies it. The report has one verdict per port whose
	// circuit the change touches, and per circuit that is to be verified. A nil error means
	// that all of them are as intended, to the level wanted or the highest that the switch can
	// reach. It reads the map first, and refuses with ErrDrift where that is not Before; after
	// a lost answer it reads the map back instead of asking again.
	Apply(ctx context.Context, c Change) ([]Circuit, error)
	// Health reports on every port.
	Health(ctx context.Context) ([]Health, error)
	Close() error
}

// Watcher is a Switch that says by itself when its circuits or ports have changed.
type Watcher interface {
	Switch
	// Watch calls changed, from one goroutine, at the start and whenever something may have changed,
	// until the context or the subscription ends, and returns why. changed must not block.
	Watch(ctx context.Context, changed func()) error
}

// Delta lists, in order of port, the circuits that a change removes and those it adds: a
// circuit that both maps have is in neither, so light on it is not disturbed.
func Delta(before, after circuit.Permutation) (remove, add []circuit.Pair) {
	for r := range before {
		if before[r] == after[r] {
			continue
		}
		if before[r] != circuit.Dark {
			remove = append(remove, circuit.Pair{From: r, To: before[r]})
		}
		if after[r] != circuit.Dark {
			add = append(add, circuit.Pair{From: r, To: after[r]})
		}
	}
	return remove, add
}
