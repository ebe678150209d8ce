package device

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// DarkDBm is the reading of a detector without light.
const DarkDBm = -60

// maxAveraging is the longest window of a detector.
const maxAveraging = 1280 * time.Millisecond

// sample is the power of a port, valid from a time on.
type sample struct {
	at time.Time
	mw float64
}

// LossDB returns the insertion loss between two ports, as measured in the factory.
func (d *Device) LossDB(in, out int) float64 {
	r := rand.New(rand.NewPCG(d.cfg.Seed, uint64(in)<<32|uint64(out)))
	return d.preset.LossMinDB + (d.preset.LossMaxDB-d.preset.LossMinDB)*r.Float64()
}

// Averaging returns the window of the detectors.
func (d *Device) Averaging() time.Duration {
	d.lock()
	defer d.unlock()
	return d.averaging
}

// SetAveraging sets the window of the detectors, limited to 0 to maxAveraging.
func (d *Device) SetAveraging(window time.Duration) {
	d.lock()
	defer d.unlock()
	d.averaging = min(max(window, 0), maxAveraging)
}

// PowerDBm returns the reading of a port's detector: the received power, averaged over the window. So lost light still
// shows for some time. ok is false if there is no detector.
func (d *Device) PowerDBm(port int, side Side) (dbm float64, ok bool) {
	d.lock()
	defer d.unlock()
	if port < 0 || port >= d.cfg.Ports || side != Egress || d.cfg.NoMeters {
		return 0, false
	}
	return toDBm(d.averageMW(d.cfg.Now(), port)), true
}

func (d *Device) averageMW(now time.Time, port int) float64 {
	samples := d.light[port]
	if d.averaging == 0 {
		if len(samples) == 0 {
			return toMW(DarkDBm)
		}
		return samples[len(samples)-1].mw
	}
	from, until, sum := now.Add(-d.averaging), now, 0.0
	for _, s := range slices.Backward(samples) {
		begin := s.at
		if begin.Before(from) {
			begin = from
		}
		if begin.Before(until) {
			sum += s.mw * until.Sub(begin).Seconds()
			until = begin
		}
	}
	sum += toMW(DarkDBm) * until.Sub(from).Seconds()
	return sum / d.averaging.Seconds()
}

// illuminate records the power of an egress port from a time on.
func (d *Device) illuminate(at time.Time, out int) {
	mw := toMW(DarkDBm)
	if r := d.byOut[out]; r != nil && d.carries(r) {
		mw = toMW(d.cfg.LaunchDBm - d.LossDB(r.in, out) - d.faults.lossDB(r))
	}
	samples := d.light[out]
	// Keep the sample that is valid at the beginning of the longest window, and drop earlier ones.
	old := 0
	for old+1 < len(samples) && samples[old+1].at.Before(at.Add(-maxAveraging)) {
		old++
	}
	d.light[out] = append(slices.Delete(samples, 0, old), sample{at, mw})
}

// carries reports whether light arrives through a circuit.
func (d *Device) carries(r *row) bool { return r.state == Tuned && !r.dim && !d.faults.dark(r) }

// relight records the power of all ports after a change of faults.
func (d *Device) relight(now time.Time) {
	for out, r := range d.byOut {
		if r != nil {
			d.illuminate(now, out)
		}
	}
}

func toMW(dbm float64) float64 { return math.Pow(10, dbm/10) }

func toDBm(mw float64) float64 { return max(10*math.Log10(mw), DarkDBm) }
