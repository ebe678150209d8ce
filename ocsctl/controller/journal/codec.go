package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lightpath/internal/decode"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// Format is the version of stored values. A controller refuses a store of a later version. Version 2 has epochs of
// ports; version 1 had maps of past epochs.
const Format = 2

// FormatValue is the stored format version; it decides which programs may read a store.
type FormatValue struct {
	Version  int    `json:"version"`
	Software string `json:"software"` // version of the program that wrote it
}

// Author is the controller that writes a value.
type Author struct {
	Name  string
	Token uint64
}

// planeValue is the stored form of a State. Digest, Name, Token and Time tell operators which map is in force, since
// when, and by which controller.
type planeValue struct {
	Version int    `json:"version"`
	Plane   int    `json:"plane"`
	Digest  string `json:"digest"` // of map
	State
	Past json.RawMessage `json:"past,omitempty"` // of version 1: ignored

	Name  string    `json:"controller"`
	Token uint64    `json:"token"`
	Time  time.Time `json:"time"`
}

// PlaneKey names the state of a plane in a store.
func PlaneKey(j int) string { return fmt.Sprintf("planes/%03d", j) }

// Encode writes a value of a store as JSON, so that an operator can read it.
func Encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return b, nil
}

// Decode reads a stored value. A version later than Format is ocsctl.ErrVersion; unknown fields or other errors are
// ErrCorrupt.
func Decode(key string, data []byte, v any) error {
	var head struct {
		Version int `json:"version"`
	}
	err := json.Unmarshal(data, &head)
	if err == nil && head.Version > Format {
		return fmt.Errorf("journal: %s is of format %d, this program reads up to %d: %w",
			key, head.Version, Format, ocsctl.ErrVersion)
	}
	if err == nil && head.Version < 1 {
		err = errors.New("it has no version")
	}
	if err == nil {
		err = decode.StrictJSON(data, v)
	}
	if err != nil {
		return fmt.Errorf("journal: %s: %w: %w", key, err, ErrCorrupt)
	}
	return nil
}

// DecodeFormat checks the format of a store; software is the version of this program. A later format is
// ocsctl.ErrVersion, and the error names the versions of both programs.
func DecodeFormat(key string, data []byte, software string) error {
	var v FormatValue
	err := Decode(key, data, &v)
	if errors.Is(err, ocsctl.ErrVersion) {
		err = fmt.Errorf("%w: it was written by version %s, this is version %s", err, softwareOf(data), software)
	}
	return err
}

// softwareOf returns the version of the program that wrote a format value of any version.
func softwareOf(data []byte) string {
	var v struct {
		Software string `json:"software"`
	}
	if json.Unmarshal(data, &v) != nil || v.Software == "" {
		return "unknown"
	}
	return v.Software
}

// EncodePlane writes the state of plane j.
func EncodePlane(j int, s *State, by Author) ([]byte, error) {
	return Encode(planeValue{Version: Format, Plane: j, Digest: digest(s.Map), State: *s, Name: by.Name, Token: by.Token,
		Time: time.Now().UTC()})
}

// digest returns a short text by which operators compare maps.
func digest(m circuit.Permutation) string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%016x", m.Digest())
}

// DecodePlane reads the state of the plane that key names. It checks that maps are valid, but not their number of
// ports; see [State.Fits].
func DecodePlane(key string, data []byte) (j int, s State, err error) {
	var v planeValue
	if err := Decode(key, data, &v); err != nil {
		return 0, s, err
	}
	if err := v.check(key); err != nil {
		return 0, s, fmt.Errorf("journal: %s: %w: %w", key, err, ErrCorrupt)
	}
	if v.Intent != nil {
		v.Intent.Plane = v.Plane
	}
	return v.Plane, v.State, nil
}

func (v *planeValue) check(key string) error {
	if v.Plane < 0 || !strings.HasSuffix(key, PlaneKey(v.Plane)) {
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
	if err := checkEpochs(v.Epochs, len(v.Map), v.Epoch); err != nil {
		return err
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
		if err := checkEpochs(i.Epochs, len(i.To), i.Epoch+1); err != nil {
			return fmt.Errorf("intent.%w", err)
		}
	}
	if t := v.Trial; t != nil {
		for _, m := range []circuit.Permutation{t.Before, t.After} {
			if err := m.Validate(len(v.Map)); err != nil {
				return fmt.Errorf("trial: map%w", err)
			}
		}
	}
	for i := range v.Jobs {
		if err := v.Jobs[i].Check(controller.MaxPorts, controller.MaxPlanes); err != nil {
			return fmt.Errorf("jobs[%d]: %w", i, err)
		}
	}
	return nil
}

// checkEpochs returns nil if the epochs of ports may be those of a plane at an epoch; nil epochs are.
func checkEpochs(epochs []uint32, ports int, newest uint32) error {
	switch {
	case epochs == nil:
		return nil
	case len(epochs) == 0 || len(epochs) != ports:
		return fmt.Errorf("epochs: of %d ports, the map has %d", len(epochs), ports)
	case slices.Max(epochs) > newest:
		return fmt.Errorf("epochs: %d is above that of the plane, %d", slices.Max(epochs), newest)
	}
	return nil
}

// Fits returns nil if the state can be that of plane j of a fabric. Otherwise the error names key and wraps
// ErrOtherFabric.
func (s *State) Fits(key string, j, ports, planes int) error {
	has := len(s.Map)
	if s.Intent != nil {
		has = max(has, len(s.Intent.To))
	}
	known := slices.AppendSeq(slices.Collect(maps.Keys(s.Baselines)), maps.Keys(s.Moved))
	for _, port := range slices.AppendSeq(known, maps.Keys(s.FailedMoves)) {
		if port < 0 || port >= ports {
			return fmt.Errorf("journal: %s knows port %d, in a fabric of %d: %w", key, port, ports, ErrOtherFabric)
		}
	}
	if t := s.Trial; t != nil && slices.ContainsFunc(t.Planes, func(j int) bool { return j < 0 || j >= planes }) {
		return fmt.Errorf("journal: %s: a change of planes %v, in a fabric of %d: %w", key, t.Planes, planes, ErrOtherFabric)
	}
	for i := range s.Jobs {
		if err := s.Jobs[i].Check(ports, planes); err != nil {
			return fmt.Errorf("journal: %s: job %s: %w: %w", key, s.Jobs[i].ID, err, ErrOtherFabric)
		}
	}
	switch {
	case j >= planes:
		return fmt.Errorf("journal: %s is of plane %d, in a fabric of %d: %w", key, j, planes, ErrOtherFabric)
	case has != 0 && has != ports:
		return fmt.Errorf("journal: %s is of %d ports, in a fabric of %d: %w", key, has, ports, ErrOtherFabric)
	}
	return nil
}
