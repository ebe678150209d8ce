package demo

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/bench"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/circuit"
)

// Limits that make a run measure the plan and not the host.
const (
	// capacityShare is the largest share of the host's rate that all ports of an experiment together may use.
	capacityShare = 0.4
	// unshaped is a rate that no port reaches, in bit/s.
	unshaped = 100e9
	// capacityTime is how long the host's rate is measured.
	capacityTime = time.Second
)

// ErrTooSlow reports a host whose rate is too low for the planes of an experiment.
var ErrTooSlow = errors.New("demo: this host is too slow for the planes")

// checkCapacity measures the host's rate. It refuses experiments that need more than capacityShare of it.
func checkCapacity(list []Experiment, w io.Writer) error {
	rate, err := measureCapacity(list[0].Scale.FrameData)
	if err != nil {
		return err
	}
	most := 0.0
	for i := range list {
		s := &list[i].Scale
		most = max(most, float64(ranks*s.Planes)*s.RateGbps)
	}
	fmt.Fprintf(w, "this host carries %.2f Gb/s from %d ranks over unshaped planes; the experiments need at most "+
		"%.2f Gb/s, %.0f %%\n",
		rate, ranks, most, 100*most/rate)
	if most > capacityShare*rate {
		return fmt.Errorf("%w: they need %.2f Gb/s, it carries %.2f", ErrTooSlow, most, rate)
	}
	return nil
}

// measureCapacity measures the payload that all ranks together send over one plane without a rate, in Gb/s.
func measureCapacity(frameData int) (float64, error) {
	f := bench.EmulatedFabric("capacity", "", ranks, 1, unshaped, 0)
	bench.OnKernel(f)
	state, down, err := bench.KernelPlanes(f, frameData)
	if err != nil {
		return 0, err
	}
	defer func() { _ = down() }() // the next demo removes a fabric that stays
	board, err := kernel.Open(state)
	if err != nil {
		return 0, err
	}
	defer func() { _ = board.Close() }() // nothing that it wrote outlives this fabric
	if err := board.Install(0, circuit.Shift(ranks, 1)); err != nil {
		return 0, err
	}
	return sendAll(state, frameData)
}

// sendAll makes every rank send to the next rank, and receive, as fast as it can. It returns the rate received in Gb/s.
func sendAll(state *kernel.State, frameData int) (float64, error) {
	ports := make([]*kernel.Port, ranks)
	for r := range ports {
		p, err := kernel.Attach(state, r)
		if err != nil {
			return 0, err
		}
		defer func() { _ = p.Close() }() // the sockets are not used again
		ports[r] = p
	}
	var received atomic.Uint64
	var stop atomic.Bool
	var wg sync.WaitGroup
	began := time.Now()
	for r, p := range ports {
		to := ports[(r+1)%ranks].Planes[0]
		peer := &unix.SockaddrInet4{Port: int(to.Local.Port()), Addr: to.Local.Addr().As4()}
		out, in := make([]byte, frameData), make([]byte, frameData)
		wg.Go(func() {
			for !stop.Load() {
				// A full queue is tried again. Only received bytes count.
				_ = unix.Sendto(p.Planes[0].FD, out, 0, peer)
				for {
					n, _, err := unix.Recvfrom(p.Planes[0].FD, in, 0)
					if err != nil {
						break
					}
					received.Add(uint64(n))
				}
			}
		})
	}
	time.Sleep(capacityTime)
	stop.Store(true)
	took := time.Since(began)
	wg.Wait()
	if received.Load() == 0 {
		return 0, errors.New("demo: nothing arrives over planes in the kernel")
	}
	return float64(received.Load()) * 8 / 1e9 / took.Seconds(), nil
}
