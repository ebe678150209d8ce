package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
)

// BlocksOf returns how many of a call's blocks make up its bytes, as nccl-tests counts them. Keys of cached plans count
// the bytes of a block.
func BlocksOf(k *cache.Key) float64 {
	if c, err := schedule.ParseCollective(k.Collective); err == nil && k.Ranks > 0 {
		return 1 / c.BlockBytes(1, k.Ranks)
	}
	return 1
}

// CallBytes returns the bytes of the call that has blocks of the given bytes.
func CallBytes(k *cache.Key, block int64) float64 { return math.Round(float64(block) * BlocksOf(k)) }

// Micros is a flag of microseconds: a duration such as 200us, or a bare number.
type Micros float64

// Set implements pflag.Value.
func (m *Micros) Set(text string) error {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		*m = Micros(v)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is neither a duration such as 200us nor a number of microseconds", text)
	}
	*m = Micros(float64(d) / float64(time.Microsecond))
	return nil
}

func (m *Micros) String() string { return strconv.FormatFloat(float64(*m), 'g', -1, 64) + "us" }

// Type implements pflag.Value.
func (m *Micros) Type() string { return "duration" }

// Gbps is a flag of Gb/s: a rate such as 400Gbps, or a bare number.
type Gbps float64

// Set implements pflag.Value.
func (g *Gbps) Set(text string) error {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		*g = Gbps(v)
		return nil
	}
	r, err := fabric.ParseRate(text)
	*g = Gbps(float64(r) / 1e9)
	return err
}

func (g *Gbps) String() string { return strconv.FormatFloat(float64(*g), 'g', -1, 64) + "Gbps" }

// Type implements pflag.Value.
func (g *Gbps) Type() string { return "rate" }

// CheckPlanner returns an error that names --planner unless a planner of schedules has the name.
func CheckPlanner(name string) error {
	if slices.Contains(planner.Names(), name) {
		return nil
	}
	return fmt.Errorf("--planner: %q is none of %s", name, strings.Join(planner.Names(), ", "))
}

// AtLeast returns an error that names the flag, with its dashes, if its value is below the least one.
func AtLeast[T cmp.Ordered](flag string, value, least T) error {
	if value < least {
		return fmt.Errorf("%s: %v; at least %v", flag, value, least)
	}
	return nil
}

// Within returns an error that names the flag, with its dashes, if its value is outside low..high.
func Within[T cmp.Ordered](flag string, value, low, high T) error {
	if value < low || value > high {
		return fmt.Errorf("%s: %v is outside %v..%v", flag, value, low, high)
	}
	return nil
}

// Positive returns an error that names the flag, with its dashes, unless its value is positive.
func Positive[T ~int64 | ~float64](flag string, value T) error {
	if value > 0 {
		return nil
	}
	return fmt.Errorf("%s: %v is not positive", flag, value)
}
