package protocols

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"lightpath/internal/decode"
)

// Simulation is a run to make: a world and its choices.
type Simulation struct {
	Config    Config
	Seed      uint64 // at most MaxSeed
	Choices   []int  // each at least 0; the choices after them are 0. nil: those of Seed
	Violation string // name of the invariant that the run violates; "": none
}

const (
	// MaxSeed is the largest seed, so that every reader of JSON reads seeds exactly.
	MaxSeed = 1<<53 - 1

	maxChoices = 1 << 24
)

// Chooser returns a new chooser that makes the choices of s.
func (s *Simulation) Chooser() Chooser {
	if s.Choices != nil {
		return Replay(s.Choices)
	}
	return Random(s.Seed)
}

// simulationFile is a simulation as written: one of Seed and Choices.
type simulationFile struct {
	Version   int            `json:"version"`
	Config    map[string]any `json:"config"`
	Seed      *uint64        `json:"seed,omitempty"`
	Choices   *[]int         `json:"choices,omitempty"`
	Violation string         `json:"violation,omitempty"`
}

// Encode writes a simulation as a file that [Decode] reads back.
func (s *Simulation) Encode() ([]byte, error) {
	cfg := s.Config.complete()
	file := simulationFile{Version: version, Config: map[string]any{}, Violation: s.Violation}
	for _, f := range cfg.Sizes() {
		file.Config[f.Name] = *f.Value
	}
	if len(cfg.Faults) > 0 {
		file.Config["faults"] = cfg.Faults
	}
	if file.Seed = &s.Seed; s.Choices != nil {
		file.Seed, file.Choices = nil, &s.Choices
	}
	text, err := json.Marshal(file)
	return append(text, '\n'), err
}

// Decode reads a simulation file. Errors name the field.
func Decode(data []byte) (*Simulation, error) {
	s, seen := &Simulation{}, map[string]bool{}
	r := decode.NewReader(data)
	err := r.Object(func(key string) (err error) {
		seen[key] = true
		switch key {
		case "version":
			err = readVersion(r)
		case "config":
			err = readConfig(r, &s.Config)
		case "seed":
			var seed int
			seed, err = r.Integer(0, MaxSeed)
			s.Seed = uint64(seed)
		case "choices":
			s.Choices, err = decode.List(r, maxChoices, r.Between(0, math.MaxInt32))
		case "violation":
			if s.Violation, err = r.Text(); err == nil && s.Violation == "" {
				err = r.Errorf("want the name of an invariant")
			}
		default:
			err = r.Errorf("unknown field")
		}
		return err
	})
	if err == nil {
		err = r.Need(seen, "version", "config")
	}
	if err == nil && seen["seed"] == seen["choices"] {
		err = r.Errorf("seed, choices: want one of them")
	}
	if err == nil {
		err = r.End()
	}
	if err == nil {
		if err = s.Config.Check(); err != nil {
			err = fmt.Errorf("config.%w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// readVersion reads the version of the model. Choices of another version would make another run.
func readVersion(r *decode.Reader) error {
	v, err := r.Integer(0, math.MaxInt32)
	if err == nil && v != version {
		err = r.Errorf("%d is not %d: seeds and choices make other runs in another version", v, version)
	}
	return err
}

// readConfig reads the object of a world. A field that is missing has its default.
func readConfig(r *decode.Reader, cfg *Config) error {
	sizes := cfg.Sizes()
	return r.Object(func(key string) (err error) {
		if key == "faults" {
			return readFaults(r, cfg)
		}
		i := slices.IndexFunc(sizes, func(f Size) bool { return f.Name == key })
		if i < 0 {
			return r.Errorf("unknown field")
		}
		*sizes[i].Value, err = r.Integer(sizes[i].Low, sizes[i].High)
		return err
	})
}

func readFaults(r *decode.Reader, cfg *Config) error {
	known := FaultNames()
	return r.List(math.MaxInt, func(int) error {
		name, err := r.Text()
		switch {
		case err != nil:
			return err
		case !slices.Contains(known, name):
			return r.Errorf("there is no fault %q", name)
		case slices.Contains(cfg.Faults, name):
			return r.Errorf("fault %q appears twice", name)
		}
		cfg.Faults = append(cfg.Faults, name)
		return nil
	})
}
