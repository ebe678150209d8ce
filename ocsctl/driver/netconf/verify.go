package netconf

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"lightpath/internal/clock"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf/wire"
	"lightpath/plans/circuit"
)

// guard is the time after a change in which port states are ignored: the module has no word for a moving mirror, and
// its port states may be those of the shutters.
const guard = 30 * time.Millisecond

// The averaging times of detectors. According to the module, the shortest averages over about 10 ms; fastWindow has a
// reserve. Each step doubles the time.
const (
	fastAveraging    = 1
	defaultAveraging = 4
	slowAveraging    = 8
	fastWindow       = 15 * time.Millisecond
)

// Words of /port-config/port/status.
const (
	stateEnabled     = "ENABLED"
	stateUnsupported = "UNSUPPORTED"
	stateFailed      = "FAILED"
)

// States implements driver.Protocol.
func (t *transaction) States(ctx context.Context, circuits []circuit.Pair) ([]driver.State, error) {
	if err := clock.Sleep(ctx, time.Until(t.sent.Add(guard))); err != nil {
		return nil, err
	}
	data, err := t.have(ctx, "port-config")
	if err != nil {
		return nil, err
	}
	states, err := wire.PortStates(data)
	if err != nil || len(states) == 0 {
		return nil, protocol(err)
	}
	all := make([]driver.State, len(circuits))
	for i, c := range circuits {
		all[i] = driver.Up
		for _, id := range []uint32{t.ports.in[c.From], t.ports.out[c.To]} {
			switch s, known := states[id]; {
			case s == stateEnabled, all[i] == driver.Failed:
			case s == stateFailed:
				all[i] = driver.Failed
			case !known, s == stateUnsupported:
				all[i] = driver.Unsaid
			case all[i] == driver.Up:
				all[i] = driver.Pending
			}
		}
	}
	return all, nil
}

// Light implements driver.Protocol.
func (t *transaction) Light(ctx context.Context, circuits []circuit.Pair) ([]float64, error) {
	data, err := t.have(ctx, "opm-power")
	if err != nil {
		return nil, err
	}
	powers, err := wire.Powers(data)
	if err != nil || len(powers) == 0 {
		return nil, protocol(err)
	}
	dbm := make([]float64, len(circuits))
	for i, c := range circuits {
		var ok bool
		if dbm[i], ok = powers[t.ports.out[c.To]]; !ok {
			dbm[i] = math.NaN()
		}
	}
	return dbm, nil
}

// shorten sets the detectors of the egress ports to their shortest averaging time, and returns the window that they
// then have. If the switch refuses, that is their longer window.
func (t *transaction) shorten(ctx context.Context) (time.Duration, error) {
	data, err := t.have(ctx, "opm-config")
	if err != nil {
		return 0, err
	}
	config, slowest := optical("opm-config"), fastAveraging
	if have := data.Child(wire.OpticalNS, "opm-config"); have != nil {
		for _, row := range have.Children {
			id, err := wire.PortID(row.Value(wire.OpticalNS, "port-id"))
			at := averagingTime(row)
			if _, ours := t.ports.egress[id]; err != nil || !ours || at == fastAveraging {
				continue
			}
			slowest = max(slowest, at)
			config.Children = append(config.Children, optical("port",
				wire.Leaf(wire.OpticalNS, "port-id", strconv.FormatUint(uint64(id), 10)),
				wire.Leaf(wire.OpticalNS, "averaging-time", strconv.Itoa(fastAveraging))))
		}
	}
	if len(config.Children) == 0 {
		return fastWindow, nil
	}
	store := t.edited()
	_, err = t.call(ctx, edit(store, t.session.peer, config))
	if err == nil && store == candidate {
		_, err = t.call(ctx, base("commit"))
	}
	if t.clean(ctx, err); errors.Is(err, driver.ErrRefused) {
		return fastWindow << (slowest - fastAveraging), nil
	}
	return fastWindow, err
}

// averagingTime returns the averaging time of a row of /opm-config, or the module's default.
func averagingTime(row *wire.Element) int {
	v, err := strconv.Atoi(row.Value(wire.OpticalNS, "averaging-time"))
	if err != nil || v < fastAveraging || v > slowAveraging {
		return defaultAveraging
	}
	return v
}
