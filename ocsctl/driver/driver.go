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
	// ErrUnknownOutcome: the switch did not answer in time, and reading its map back did not show the outcome. No
	// operation may use its circuits.
	ErrUnknownOutcome = errors.New("outcome of the change is unknown")
	// ErrRefused: the switch or the protocol refused the request; the map is as before.
	ErrRefused = errors.New("refused by the switch")
	// ErrProtocol: the peer violated its protocol, or a message is too large.
	ErrProtocol = errors.New("not what the protocol allows")
	// ErrNoAnswer: the switch cannot be reached, or does not answer in time.
	ErrNoAnswer = errors.New("does not answer")
	// ErrUnwell: a port has failed, or a circuit has lost its light.
	ErrUnwell = errors.New("bad port or circuit")
	// ErrFenced: a controller with a higher fencing token has written.
	ErrFenced = errors.New("another controller with a higher token writes this switch")
	// ErrDrift: the switch's map is not the one that the change starts from, because another writer has changed it. The
	// driver has sent no request.
	ErrDrift = errors.New("the switch's map is not the one that the change starts from")
	// ErrNotAsIntended: the outcome is known, and some circuits are not as asked; the verdicts name
	// them.
	ErrNotAsIntended = errors.New("circuits are not as intended")
	// ErrPorts: the switch answers, but lacks ports that the map needs.
	ErrPorts = errors.New("the switch does not have these ports")
	// ErrClosed: the driver was closed.
	ErrClosed = errors.New("closed")
	// ErrNotMatching: the switch reports a map in which a port has two circuits.
	ErrNotMatching = errors.New("the switch reports a map that is no matching")
)

// Level is how far a circuit has been verified. Each level implies the lower ones.
type Level int

// The levels of verification.
const (
	Unverified Level = iota
	ReadBack         // the switch's own table has it
	Status           // the switch reports the circuit as up: tuned, connected, no port failed
	Light            // the egress port receives optical power, if it can measure that
	Token            // a token sent over the circuit has arrived at the right port
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

// Ports maps ports of a map to a switch's ports: port r sends into In[r] and receives from Out[r]. The labels are the
// switch's own ("1", "17"; "1A", "1B"). A nil Out means the egress sides of the ports In, as the protocol names them.
type Ports struct {
	In, Out []string
}

// Change is a request to change a switch's map from Before, which the caller has read, to After. The driver computes
// the difference, deletes first, then makes; it does not touch circuits of both maps. Token fences writers if the
// protocol can. If the maps are equal, the change only verifies the circuits.
type Change struct {
	Before, After circuit.Permutation
	Token         uint64
	Want          Level // verify to this level, as far as the switch can
	// Check selects the ports whose circuits are verified; nil: all. New circuits are always verified.
	Check []bool
	// May is called right before the switch is asked to change circuits. An error ends the change, which has then changed
	// nothing. nil: it may.
	May func() error
}

// Circuit is the verdict on one circuit of a change.
type Circuit struct {
	In       int    `json:"in"`       // port of the map
	Intended int    `json:"intended"` // the requested port, -1 dark
	Accepted bool   `json:"accepted"` // the switch took the request
	Observed int    `json:"observed"` // the port by read-back, -1 dark
	Verified Level  `json:"verified"`
	Reason   string `json:"reason,omitempty"` // why it is not as intended
	// PowerDBm is the power that the egress port receives; 0 unless HasPower.
	PowerDBm float64   `json:"power_dbm,omitempty"`
	HasPower bool      `json:"has_power"`
	At       time.Time `json:"at,omitzero"` // when this was seen
}

// Health is a switch's report on one of its ports.
type Health struct {
	Port     string  `json:"port"`
	State    string  `json:"state"`               // the switch's word: TUNED, BLOCKED, ENABLED, ...; "": it reports none
	Failed   bool    `json:"failed"`              // the port cannot carry light
	Unready  bool    `json:"-"`                   // it carries none now: it is blocked, disabled or moves
	PowerDBm float64 `json:"power_dbm,omitempty"` // received; 0 unless HasPower
	HasPower bool    `json:"has_power"`
}

// Info identifies a switch.
type Info struct {
	Vendor   string `json:"vendor"`
	Model    string `json:"model"`
	Serial   string `json:"serial"`
	Software string `json:"software"`
	Dialect  string `json:"dialect"`   // of the protocol, if there are several
	CanFence bool   `json:"can_fence"` // the protocol refuses writers with a lower token
	CanState bool   `json:"can_state"` // it reports whether circuits are up and ports have failed
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

// Switch drives one switch. Safe for concurrent use: an implementation serializes requests if its protocol requires
// that. A context bounds each call.
type Switch interface {
	// Info reads the switch's identity and abilities.
	Info(ctx context.Context) (Info, error)
	// Read returns the switch's present map. It ignores circuits of ports that Ports does not name. If a port has two
	// circuits, the error wraps ErrNotMatching.
	Read(ctx context.Context) (circuit.Permutation, error)
	// Apply makes a change and verifies it. It returns one verdict per port whose circuit the change touches, and per
	// circuit to verify. A nil error means that all of them are as intended, up to the wanted level or the highest
	// level that the switch can reach. Apply first reads the map, and returns ErrDrift if it is not Before. After a
	// lost answer it reads the map back and does not repeat the request.
	Apply(ctx context.Context, c Change) ([]Circuit, error)
	// Health reports on every port.
	Health(ctx context.Context) ([]Health, error)
	Close() error
}

// Fencer is a Switch whose protocol refuses writers with a lower token than it has seen.
type Fencer interface {
	Switch
	// Fence shows a token to the switch, without a change. Afterwards the switch refuses changes with lower ones, also
	// those on their way. The error wraps ErrFenced if the switch has seen a higher token, and ErrRefused if it takes no
	// request without a change.
	Fence(ctx context.Context, token uint64) error
}

// Watcher is a Switch that notifies of changes of its circuits or ports.
type Watcher interface {
	Switch
	// Watch calls changed, from one goroutine, at the start and whenever something may have changed,
	// until the context or the subscription ends, and returns why. changed must not block.
	Watch(ctx context.Context, changed func()) error
}

// Delta returns the circuits that a change removes and the circuits that it adds, in order of ports. A circuit of both
// maps is in neither list, so its light is not disturbed.
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
