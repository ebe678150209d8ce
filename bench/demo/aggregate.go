package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// Limits of a proof that measures the plan and not the host.
const (
	// roomShare is the most of what the host can carry that all ports of an experiment together may ask for.
	roomShare = 0.4
	// unshaped is a rate that no port reaches.
	unshaped = 100e9
	// aggregateTime is how long the host's own rate is measured.
	aggregateTime = time.Second
)

// ErrNoRoom reports a host that cannot carry an experiment's planes with room to spare.
var ErrNoRoom = errors.New("demo: the planes ask for too much of this host")

// roomFor measures what the host carries and refuses experiments that come too close to it.
func roomFor(list []Experiment, w io.Writer) error {
	rate, err := aggregate(list[0].Scale.FrameData)
	if err != nil {
		return err
	}
	most := 0.0
	for i := range list {
		s := &list[i].Scale
		most = max(most, float64(ranks*s.Planes)*s.RateGbps)
	}
	fmt.Fprintf(w, "this host carries %.2f Gb/s from %d ranks over unshaped planes; the experiments ask for at most %.2f Gb/s, %.0f %%\n", rate, ranks, most, 100*most/rate)
	if most > roomShare*rate {
		return fmt.Errorf("%w: %.2f Gb/s of %.2f", ErrNoRoom, most, rate)
	}
	return nil
}

// aggregate measures the payload that all ranks together send over one plane without a rate, in Gb/s.
func aggregate(frameData int) (float64, error) {
	name := fmt.Sprintf("room%d", os.Getpid())
	f := &fabric.Fabric{
		Version: fabric.Version, Name: name, Ranks: ranks, Circuits: plans.Simplex,
		Planes: []fabric.Plane{{Name: "p0", Bandwidth: unshaped, OCS: "ocs0", Interface: "p0"}},
		OCS:    []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator}},
	}
	state, down, err := kernel.Temporary(f, kernel.Options{MTU: frameMTU(frameData)})
	if err != nil {
		return 0, err
	}
	defer func() { _ = down() }() // a fabric that stays is listed, and removed by the next demo
	board, err := kernel.Open(state)
	if err != nil {
		return 0, err
	}
	defer func() { _ = board.Close() }() // nothing that it wrote outlives this fabric
	if err := board.Install(0, circuit.Shift(ranks, 1)); err != nil {
		return 0, err
	}
	return blast(state, board, frameData)
}

// blast lets every rank send to the next as fast as it can, and every rank take what comes.
func blast(state *kernel.State, board *kernel.Board, frameData int) (float64, error) {
	ports := make([]*kernel.Port, ranks)
	for r := range ports {
		p, err := kernel.Attach(state, r)
		if err != nil {
			return 0, err
		}
		defer func() { _ = p.Close() }() // of sockets that have served
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
				// What does not fit now is offered again; what the receiver has no room for is not counted.
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
	time.Sleep(aggregateTime)
	stop.Store(true)
	took := time.Since(began)
	wg.Wait()
	if received.Load() == 0 {
		return 0, errors.New("demo: nothing arrives over planes in the kernel")
	}
	return float64(received.Load()) * 8 / 1e9 / took.Seconds(), nil
}
