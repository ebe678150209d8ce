package barrier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"lightpath/bench/sampling"
	"lightpath/internal/monotonic"
	"lightpath/internal/shmring"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans/circuit"
)

// Mode is the way in which a rank waits.
type Mode string

// The modes.
const (
	Spin  Mode = "spin"  // polls, and yields between polls
	Sleep Mode = "sleep" // sleeps until the controller wakes it
)

// Options of a measurement.
type Options struct {
	Ranks, Rounds int
	Mode          Mode
	// Dial connects to a port of one plane's controller, which has Ranks ports. If it is nil, Run starts a controller
	// in this process and connects through shared memory.
	Dial func(port int) (ocsctl.Client, error)
	Name string // of the carrier that Dial uses, for the report
}

const (
	warmup  = 200              // rounds before the timed ones
	timeout = 10 * time.Second // bounds one round
)

// Report is a measurement. Times begin with the last rank's post.
type Report struct {
	Name       string               `json:"name"`
	Mode       Mode                 `json:"mode"`
	Ranks      int                  `json:"ranks"`
	Rounds     int                  `json:"rounds"`
	CPUs       int                  `json:"cpus"`
	GOMAXPROCS int                  `json:"gomaxprocs"`
	All        sampling.Percentiles `json:"all_ns"`    // until the last rank sees the epoch
	Each       sampling.Percentiles `json:"each_ns"`   // until each rank sees it
	Period     time.Duration        `json:"period_ns"` // mean time of a round
	Histogram  []sampling.Bucket    `json:"histogram"` // of All
}

// Run measures one barrier after the other, until ctx is done.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Ranks < 2 || o.Ranks > controller.MaxPorts || o.Rounds < 1 {
		return nil, fmt.Errorf("barrier: %d ranks, %d rounds", o.Ranks, o.Rounds)
	}
	if o.Mode != Spin && o.Mode != Sleep {
		return nil, fmt.Errorf("barrier: mode %q, want %s or %s", o.Mode, Spin, Sleep)
	}
	if o.Dial == nil {
		dial, stop, err := serveHere(o.Ranks)
		if err != nil {
			return nil, err
		}
		defer stop()
		o.Dial, o.Name = dial, "shared memory"
	}
	ranks := make([]*rank, o.Ranks)
	defer func() {
		for _, r := range ranks {
			if r != nil {
				_ = r.client.Close() // all times are taken
			}
		}
	}()
	for p := range ranks {
		c, err := o.Dial(p)
		if err != nil {
			return nil, err
		}
		ranks[p] = newRank(c, &o)
	}
	if _, err := ranks[0].client.Acquire(ocsctl.Lease{Mask: 1, Holder: holder}); err != nil {
		return nil, err
	}
	if o.Mode == Sleep {
		// Ranks stand for processes: a rank that sleeps in the kernel must not delay another one.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), o.Ranks+2)))
	}
	errs := make([]error, o.Ranks)
	var wg sync.WaitGroup
	for p, r := range ranks {
		wg.Go(func() { errs[p] = r.run(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return o.report(ranks), nil
}

// device moves its circuits in no time.
type device struct{ at circuit.Permutation }

func (d *device) Switch(_ int, m controller.Move) error { d.at = m.To; return nil }
func (d *device) Map(int) (circuit.Permutation, error)  { return d.at, nil }

// startCore starts the controller of one plane.
func startCore(ranks int) (*controller.Core, error) {
	return controller.Start(controller.Config{
		Name: "barrier", Ports: ranks, Planes: make([]controller.PlaneConfig, 1), Device: &device{circuit.Shift(ranks, 1)},
	})
}

// serveHere starts a controller in this process that clients reach through shared memory.
func serveHere(ranks int) (dial func(int) (ocsctl.Client, error), stop func(), err error) {
	dir, err := os.MkdirTemp("", "lightpath-barrier-")
	if err != nil {
		return nil, nil, err
	}
	core, err := startCore(ranks)
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	socket := filepath.Join(dir, "ocs")
	server, err := local.Serve(core, local.Options{Socket: socket})
	if err != nil {
		core.Close()
		os.RemoveAll(dir)
		return nil, nil, err
	}
	stop = func() {
		server.Close()
		core.Close()
		os.RemoveAll(dir)
	}
	return func(p int) (ocsctl.Client, error) { return local.Dial(socket, p, "") }, stop, nil
}

// rank is one port's part.
type rank struct {
	client       ocsctl.Client
	bell         *shmring.Doorbell // wakes ranks on shared memory
	news         chan struct{}     // wakes ranks on other carriers
	maps         [2]circuit.Permutation
	posted, seen []int64
}

func newRank(c ocsctl.Client, o *Options) *rank {
	n := warmup + o.Rounds
	at := c.State(0).Map
	r := &rank{client: c, posted: make([]int64, n), seen: make([]int64, n), maps: [2]circuit.Permutation{rotate(at), at}}
	if o.Mode == Spin {
		return r
	}
	if l, ok := c.(interface{ Bell() *shmring.Doorbell }); ok {
		r.bell = l.Bell()
		return r
	}
	r.news = make(chan struct{}, 1)
	c.OnChange(func() {
		select {
		case r.news <- struct{}{}:
		default:
		}
	})
	return r
}

// rotate changes every circuit of m.
func rotate(m circuit.Permutation) circuit.Permutation {
	return append(m[1:len(m):len(m)], m[0])
}

// holder is the communicator of all ranks.
const holder = 1

// run posts and waits once per round, on a plane that rank 0 holds.
func (r *rank) run(ctx context.Context) error {
	first := r.client.State(0).Epoch
	for k := range r.posted {
		epoch := first + uint32(k)
		r.posted[k] = monotonic.Now()
		if err := r.client.Post(0, epoch, holder, r.maps[k%2]); err != nil {
			return err
		}
		for {
			at, err := r.client.Poll(0)
			if err != nil {
				return err
			}
			if int32(at-epoch) > 0 {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if monotonic.Now()-r.posted[k] > int64(timeout) {
				return fmt.Errorf("barrier: port %d plane 0 epoch %d: not switched in %v", r.client.Port(), epoch, timeout)
			}
			r.wait(epoch)
		}
		r.seen[k] = monotonic.Now()
	}
	return nil
}

// wait returns when the epoch may have changed, at the latest after a tenth of a second.
func (r *rank) wait(epoch uint32) {
	const limit = 100 * time.Millisecond
	switch {
	case r.bell != nil:
		armed := r.bell.Arm()
		if at, err := r.client.Poll(0); err == nil && int32(at-epoch) <= 0 {
			r.bell.Wait(armed, limit)
		}
	case r.news != nil:
		select {
		case <-r.news:
		case <-time.After(limit):
		}
	default:
		runtime.Gosched()
	}
}

// report evaluates the ranks' times.
func (o *Options) report(ranks []*rank) *Report {
	all, each := make([]float64, 0, o.Rounds), make([]float64, 0, o.Rounds*len(ranks))
	for k := warmup; k < warmup+o.Rounds; k++ {
		last, end := int64(0), int64(0)
		for _, r := range ranks {
			last, end = max(last, r.posted[k]), max(end, r.seen[k])
		}
		all = append(all, float64(end-last))
		for _, r := range ranks {
			each = append(each, float64(r.seen[k]-last))
		}
	}
	slices.Sort(all)
	slices.Sort(each)
	took := ranks[0].seen[warmup+o.Rounds-1] - ranks[0].posted[warmup]
	return &Report{
		Name: o.Name, Mode: o.Mode, Ranks: o.Ranks, Rounds: o.Rounds, CPUs: runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0), All: sampling.PercentilesOf(all), Each: sampling.PercentilesOf(each),
		Period: time.Duration(took / int64(o.Rounds)), Histogram: sampling.HistogramOf(all),
	}
}
