package fabric

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is a data rate in bits per second.
type Rate float64

// rateUnits are tried in this order, from the largest, when a rate is written.
var rateUnits = []struct {
	name string
	bits float64
}{{"Tbps", 1e12}, {"Gbps", 1e9}, {"Mbps", 1e6}, {"kbps", 1e3}, {"bps", 1}}

// ParseRate reads a rate above zero with its unit: "2Gbps", "1.5Gbps", "400Mbps".
func ParseRate(text string) (Rate, error) {
	for _, unit := range rateUnits {
		number, ok := strings.CutSuffix(text, unit.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		v *= unit.bits
		if err != nil || !(v > 0) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("%q is no rate above zero", text)
		}
		return Rate(v), nil
	}
	return 0, fmt.Errorf("%q has no unit: want bps, kbps, Mbps, Gbps or Tbps", text)
}

// String writes r so that [ParseRate] reads the same bits.
func (r Rate) String() string {
	for _, unit := range rateUnits {
		text := strconv.FormatFloat(float64(r)/unit.bits, 'g', -1, 64) + unit.name
		if back, err := ParseRate(text); err == nil && back == r && float64(r) >= unit.bits {
			return text
		}
	}
	return strconv.FormatFloat(float64(r), 'g', -1, 64) + "bps"
}

// parseDuration reads a duration that is not negative, with its unit.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration: want a number with a unit, ns, us, ms or s", text)
	case d < 0:
		return 0, fmt.Errorf("%q is negative", text)
	}
	return d, nil
}

// formatDuration writes d as a whole number of the largest possible unit.
func formatDuration(d time.Duration) string {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}} {
		if d%unit.d == 0 {
			return strconv.FormatInt(int64(d/unit.d), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// errMissing is the message about a required field.
var errMissing = errors.New("missing")
