package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func setInt(p *int, v string, lo, hi int) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < lo || n > hi {
		return fmt.Errorf("%q is not a number from %d to %d", v, lo, hi)
	}
	*p = n
	return nil
}

// setBytes reads a size such as 65536, 64K, 4M or 1G: powers of 1024.
func setBytes(p *int64, v string, lo, hi int64) error {
	number, shift := v, 0
	if at := strings.IndexAny(v, "KMG"); at >= 0 && at == len(v)-1 {
		number, shift = v[:at], 10*(1+strings.IndexByte("KMG", v[at]))
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > hi>>shift || n<<shift < lo {
		return fmt.Errorf("%q is not a size from %d to %d bytes such as 64K or 4M", v, lo, hi)
	}
	*p = n << shift
	return nil
}

func setBool(p *bool, v string) error {
	switch v {
	case "0":
		*p = false
	case "1":
		*p = true
	default:
		return fmt.Errorf("%q is neither 0 nor 1", v)
	}
	return nil
}

func setChoice(p *string, v string, of ...string) error {
	for _, c := range of {
		if strings.EqualFold(v, c) {
			*p = c
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", v, strings.Join(of, ", "))
}

func setPart(p *float64, v string) error {
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", v)
	}
	*p = x
	return nil
}

func setDuration(p *time.Duration, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not a positive duration like 500ms, 30s or 10m", v)
	}
	*p = d
	return nil
}

// minHeartbeat is two of the shortest keep-alive intervals. With maxHeartbeat, intervals and times of data stay within
// what the kernel takes: 32767 s, and 2^31 ms.
const (
	minHeartbeat = 2 * time.Second
	maxHeartbeat = 24 * time.Hour
)

func (c *Config) setHeartbeat(v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d != 0 && (d < minHeartbeat || d > maxHeartbeat) {
		return fmt.Errorf("%q is neither 0 nor a duration from 2s to 24h", v)
	}
	c.Sockets.Heartbeat = d
	return nil
}

func setFault(f *Fault, v string) error {
	for item := range strings.SplitSeq(v, ",") {
		name, rest, _ := strings.Cut(strings.TrimSpace(item), ":")
		switch name {
		case "skip-drain":
			plane, epoch, _ := strings.Cut(rest, ":")
			var e int
			if setInt(&f.Plane, plane, 0, 63) != nil || setInt(&e, epoch, 0, 1<<30) != nil {
				return fmt.Errorf("%q is not skip-drain:PLANE:EPOCH", item)
			}
			f.SkipDrain, f.Epoch = true, uint32(e)
		case "plan-delay":
			if err := setDuration(&f.PlanDelay, rest); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown fault %q", name)
		}
	}
	return nil
}

// set reads LIGHTPATH_METRICS.
func (m *Metrics) set(v string) error {
	if m.Dir, m.JSON = strings.CutPrefix(v, "json:"); m.Dir == "" {
		return fmt.Errorf("%q names no directory", v)
	}
	return nil
}

// setNets reads LIGHTPATH_INTERPOSE_NETS.
func (c *Config) setNets(v string) error {
	for name := range strings.SplitSeq(v, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return fmt.Errorf("%q names a network by nothing", v)
		}
		c.Other.Nets = append(c.Other.Nets, name)
	}
	return nil
}
