package calibrate

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"lightpath/bench"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
	"lightpath/plans/fabric"
)

// PacketCosts are what packet planes cost, fitted to the times of a benchmark.
type PacketCosts struct {
	AlphaUS       float64 `json:"alpha_us"`       // of a round of messages, in addition to their bytes
	BandwidthGbps float64 `json:"bandwidth_gbps"` // payload of a rank in one direction, over all packet planes together
	Off           float64 `json:"off"`            // largest |measured / predicted - 1| of a result
}

// FitPackets fits the costs of packet planes (plans/packets) to the results of a benchmark that ran over them. Results
// of different sizes determine the costs.
func FitPackets(d *bench.Document) (*PacketCosts, error) {
	var all []sample
	for i := range d.Results {
		r := &d.Results[i]
		t, err := packetTerms(r, d.Ranks)
		if err != nil {
			return nil, fmt.Errorf("calibrate: %s of %d bytes: %w", r.Collective, r.Bytes, err)
		}
		all = append(all, sample{t, r.TimeUS})
	}
	cost, err := fit(all, [costs]bool{perTransmit: true, perByte: true})
	if err != nil {
		return nil, err
	}
	c := &PacketCosts{AlphaUS: cost[perTransmit], BandwidthGbps: 8e-3 / cost[perByte]}
	for _, s := range all {
		c.Off = max(c.Off, math.Abs(s.us/s.terms.at(cost)-1))
	}
	return c, nil
}

// packetTerms returns the rounds of a result's call, and the bytes of its busiest rank.
func packetTerms(r *bench.Result, ranks int) (t terms, err error) {
	c, err := schedule.ParseCollective(r.Collective)
	switch {
	case err != nil:
		return t, err
	case r.Algorithm == "":
		return t, errors.New("the library has reported no algorithm")
	case r.Algorithm == "shared-memory":
		return t, errors.New("shared memory has no such costs: run on several hosts, or with LIGHTPATH_TRANSPORT=tcp")
	}
	s, err := msccl.Build(c, r.Algorithm, ranks, r.Root, schedule.Disjoint)
	if err != nil {
		return t, err
	}
	rounds, bytes := s.PacketLoad(float64(r.Bytes))
	t.times[perTransmit], t.times[perByte] = float64(rounds), bytes
	return t, nil
}

// Fabric returns the costs as a fabric file states them, with three significant digits.
func (c *PacketCosts) Fabric() fabric.PacketPlanes {
	return fabric.PacketPlanes{Bandwidth: fabric.Rate(math.Round(Digits(c.BandwidthGbps) * 1e9)),
		Alpha: time.Duration(math.Round(Digits(c.AlphaUS) * 1e3))}
}

// Digits rounds a cost to three significant digits: more are noise.
func Digits(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64) // a formatted number parses
	return v
}
