package device

import (
	"errors"
	"time"
)

// Delays of a switch. The time of one circuit is Program, plus PerCircuit for each circuit that the
// request makes, plus a time drawn evenly between Min and Max, plus Settle.
type Delays struct {
	Program    time.Duration // from the request to the first motion
	PerCircuit time.Duration
	Min, Max   time.Duration // of the motion
	Settle     time.Duration // from light to TUNED
	Conflict   time.Duration // added if the switch has to remove a circuit by itself
}

func (d Delays) validate() error {
	if d.Program < 0 || d.PerCircuit < 0 || d.Min < 0 || d.Max < d.Min || d.Settle < 0 || d.Conflict < 0 {
		return errors.New("delays are negative, or the longest is shorter than the shortest")
	}
	return nil
}

// Preset is a kind of switch.
type Preset struct {
	Vendor, Model string // Model takes the ports of the two sides
	Delays        Delays
	LossMinDB     float64
	LossMaxDB     float64
	Averaging     time.Duration // of its detectors, as delivered
}

// DefaultPreset is the preset of a Config that names none.
const DefaultPreset = "polatis-25ms"

// Presets are kinds of switches by name. Their values are public orders of magnitude of piezo-steered, MEMS, rotor and
// PLZT switches. Read-only.
var Presets = map[string]Preset{
	"polatis-25ms": {
		Vendor: "Polatis", Model: "N-OST-%dx%d-LA1-DMHNS",
		Delays:    Delays{Min: 10 * time.Millisecond, Max: 25 * time.Millisecond, Conflict: 10 * time.Millisecond},
		LossMinDB: 1, LossMaxDB: 2, Averaging: 80 * time.Millisecond,
	},
	"calient-200ms": {
		Vendor: "Calient", Model: "S-%dx%d",
		Delays: Delays{Program: 20 * time.Millisecond, Min: 80 * time.Millisecond, Max: 150 * time.Millisecond,
			Settle: 30 * time.Millisecond, Conflict: 300 * time.Millisecond},
		LossMinDB: 1.5, LossMaxDB: 3, Averaging: 10 * time.Millisecond,
	},
	"palomar-ms": {
		Vendor: "Palomar", Model: "MEMS-%dx%d",
		Delays: Delays{Min: 600 * time.Microsecond, Max: 1800 * time.Microsecond, Settle: 500 * time.Microsecond,
			Conflict: 2 * time.Millisecond},
		LossMinDB: 1, LossMaxDB: 2, Averaging: time.Millisecond,
	},
	"rotor-20us": {
		Vendor: "Rotor", Model: "R-%dx%d",
		Delays:    Delays{Min: 20 * time.Microsecond, Max: 20 * time.Microsecond},
		LossMinDB: 2, LossMaxDB: 3, Averaging: time.Millisecond,
	},
	"plzt-ns": {
		Vendor: "PLZT", Model: "P-%dx%d",
		Delays:    Delays{Min: 10 * time.Nanosecond, Max: 10 * time.Nanosecond},
		LossMinDB: 4, LossMaxDB: 7, Averaging: time.Millisecond,
	},
}
