package etcd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/plans/circuit"
)

// Format is the version of what is stored. A controller refuses a store of a later one.
const Format = 1

// Values are JSON, so that an operator can read them with etcdctl. Every one carries its
// version, and is refused where it says anything that this program does not know.

// formatValue is under "format": who may read this store.
type formatValue struct {
	Version  int    `json:"version"`
	Software string `json:"software"` // that raised it
}

// leaderValue is under "leader", with the lease of the rule. The key's create revision is the token.
type leaderValue struct {
	Version  int       `json:"version"`
	Name     string    `json:"name"`
	Software string    `json:"software"`
	Address  string    `json:"address,omitempty"`
	Instance string    `json:"instance"` // of the client, unlike any other
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
}

// planeValue is under "planes/000" and so on: a journal.State, and what tells operators which
// map is in force, since when and by whose order.
type planeValue struct {
	Version  int                 `json:"version"`
	Plane    int                 `json:"plane"`
	Revision uint64              `json:"revision"`
	Digest   string              `json:"digest"` // of map
	Epoch    uint32              `json:"epoch"`
	Reserved uint32              `json:"reserved"`
	Map      circuit.Permutation `json:"map"`
	Intent   *intentValue        `json:"intent,omitempty"`
	Failed   bool                `json:"failed,omitempty"`
	Disabled string              `json:"disabled,omitempty"`
	Name     string              `json:"controller"`
	Token    uint64              `json:"token"`
	Time     time.Time           `json:"time"`
}

type intentValue struct {
	Epoch uint32              `json:"epoch"`
	To    circuit.Permutation `json:"to"`
}

// segmentValue is under "history/" and the number of its first event: events that were written
// together.
type segmentValue struct {
	Version int                `json:"version"`
	Events  []controller.Event `json:"events"`
}

// Keys below the prefix.
const (
	formatKey  = "format"
	leaderKey  = "leader"
	planesKey  = "planes/"
	historyKey = "history/"
)

func planeKey(j int) string { return fmt.Sprintf("%s%03d", planesKey, j) }

func segmentKey(first uint64) string { return fmt.Sprintf("%s%020d", historyKey, first) }

// encode writes one of the values above.
func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("etcd: %w", err)
	}
	return string(b), nil
}

// decode reads one of the values above; its version is checked first, so that a later one is
// told from garbage.
func decode(key string, data []byte, v any) error {
	var head struct {
		Version int `json:"version"`
	}
	err := json.Unmarshal(data, &head)
	if err == nil && head.Version > Format {
		return fmt.Errorf("etcd: %s is of format %d, this program reads up to %d: %w", key, head.Version, Format, ocsctl.ErrVersion)
	}
	if err == nil && head.Version < 1 {
		err = errors.New("it has no version")
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err = d.Decode(v); err == nil {
			if _, more := d.Token(); !errors.Is(more, io.EOF) {
				err = errors.New("something follows it")
			}
		}
	}
	if err != nil {
		return fmt.Errorf("etcd: %s: %w: %w", key, err, journal.ErrCorrupt)
	}
	return nil
}

func encodePlane(j int, s *journal.State, l leaderValue, token uint64) (string, error) {
	v := planeValue{
		Version: Format, Plane: j, Revision: s.Revision, Digest: digest(s.Map), Epoch: s.Epoch, Reserved: s.Reserved,
		Map: s.Map, Failed: s.Failed, Disabled: s.Disabled, Name: l.Name, Token: token, Time: time.Now().UTC(),
	}
	if s.Intent != nil {
		v.Intent = &intentValue{Epoch: s.Intent.Epoch, To: s.Intent.To}
	}
	return encode(v)
}

// digest is what operators compare maps by.
func digest(m circuit.Permutation) string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%016x", m.Digest())
}

// decodePlane reads the state of the plane that key names. Maps are checked for being maps, not
// for their number of ports.
func decodePlane(key string, data []byte) (j int, s journal.State, err error) {
	var v planeValue
	if err := decode(key, data, &v); err != nil {
		return 0, s, err
	}
	if err := v.check(key); err != nil {
		return 0, s, fmt.Errorf("etcd: %s: %w: %w", key, err, journal.ErrCorrupt)
	}
	s = journal.State{Epoch: v.Epoch, Reserved: v.Reserved, Revision: v.Revision, Map: v.Map, Failed: v.Failed, Disabled: v.Disabled}
	if v.Intent != nil {
		s.Intent = &controller.Intent{Plane: v.Plane, Epoch: v.Intent.Epoch, To: v.Intent.To}
	}
	return v.Plane, s, nil
}

func (v *planeValue) check(key string) error {
	if !strings.HasSuffix(key, planeKey(v.Plane)) || v.Plane < 0 {
		return fmt.Errorf("plane: %d is not the plane of the key", v.Plane)
	}
	if v.Map != nil {
		if err := v.Map.Validate(len(v.Map)); err != nil {
			return fmt.Errorf("map%w", err)
		}
	}
	if v.Digest != digest(v.Map) {
		return fmt.Errorf("digest: %q, but that of the map is %q", v.Digest, digest(v.Map))
	}
	if v.Reserved <= v.Epoch {
		return fmt.Errorf("epoch: %d is not below the reserved %d", v.Epoch, v.Reserved)
	}
	if i := v.Intent; i != nil {
		if err := i.To.Validate(len(i.To)); err != nil {
			return fmt.Errorf("intent.to%w", err)
		}
		if v.Map != nil && len(i.To) != len(v.Map) {
			return fmt.Errorf("intent.to: has %d entries, the map %d", len(i.To), len(v.Map))
		}
		if i.Epoch >= v.Reserved {
			return fmt.Errorf("intent.epoch: %d is not below the reserved %d", i.Epoch, v.Reserved)
		}
	}
	return nil
}

// decodeSegment reads events in the order in which they happened.
func decodeSegment(key string, data []byte) ([]controller.Event, error) {
	var v segmentValue
	if err := decode(key, data, &v); err != nil {
		return nil, err
	}
	first, err := strconv.ParseUint(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
	switch {
	case err != nil:
		err = errors.New("the key has no number")
	case len(v.Events) == 0:
		err = errors.New("events: there are none")
	case v.Events[0].Seq != first:
		err = fmt.Errorf("events[0].seq: %d is not the number of the key", v.Events[0].Seq)
	}
	for i := 1; i < len(v.Events) && err == nil; i++ {
		if v.Events[i].Seq <= v.Events[i-1].Seq {
			err = fmt.Errorf("events[%d].seq: %d does not follow %d", i, v.Events[i].Seq, v.Events[i-1].Seq)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("etcd: %s: %w: %w", key, err, journal.ErrCorrupt)
	}
	return v.Events, nil
}
