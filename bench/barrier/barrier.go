// Package barrier measures the reconfiguration barrier: how long after the last rank's post every
// rank knows that the plane has its next epoch, with a device that moves in no time.
//
// Layer: bench. It drives controllers through ocsctl.Client, whatever carries that, and is no part
// of the runtime.
package barrier

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"lightpath/internal/shmring"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans/circuit"
)

// Mode is what a rank does while it waits.
type Mode string

// The modes.
const (
	Spin  Mode = "spin"  // looks again, and lets others run in between
	Sleep Mode = "sleep" // sleeps until it is woken
)

// Options say what is measured. Zero values: 8 ranks, 2000 rounds after 200 for warming up, Spin,
// shared memory.
type Options struct {
	Ranks, Rounds, Warmup int
	Mode                  Mode
	// Dial attaches a port of one plane's controller, of Ranks ports; nil: a controller of this
	// process, through shared memory.
	Dial func(port int) (ocsctl.Client, error)
	Name string // of what Dial reaches, for the report
	// Timeout bounds one round; 0: ten seconds.
	Timeout time.Duration
}

// Report is a measurement. Times are from the beginning of the last rank's post to the moment
// that the last rank, or each, sees the next epoch.
type Report struct {
	Name       string        `json:"name"`
	Mode       Mode          `json:"mode"`
	Ranks      int           `json:"ranks"`
	Rounds     int           `json:"rounds"`
	CPUs       int           `json:"cpus"`
	GOMAXPROCS int           `json:"gomaxprocs"`
	All        Quantiles     `json:"all_ns"`    // until the last rank knows
	Each       Quantiles     `json:"each_ns"`   // until a rank knows
	Period     time.Duration `json:"period_ns"` // a round of a loop that does nothing else, mean
	Histogram  []Bucket      `json:"histogram"` // of All
}

// Quantiles are of one distribution, in nanoseconds.
type Quantiles struct {
	P50 time.Duration `json:"p50"`
	P90 time.Duration `json:"p90"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`
}

// Bucket counts the rounds that took less than Below and not less than the bucket before.
type Bucket struct {
	Below time.Duration `json:"below_ns"`
	Count int           `json:"count"`
}

// Run measures.
func Run(o Options) (*Report, error) {
	o = o.defaults()
	if o.Ranks < 2 || o.Ranks > controller.MaxPorts || o.Rounds < 1 || o.Warmup < 0 {
		return nil, fmt.Errorf("barrier: %d ranks, %d rounds after %d", o.Ranks, o.Rounds, o.Warmup)
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
		o.Dial = dial
	}
	ranks := make([]*rank, o.Ranks)
	defer func() {
		for _, r := range ranks {
			if r != nil {
				_ = r.client.Close() // says nothing new
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
	if _, err := ranks[0].client.Acquire(1, holder); err != nil {
		return nil, err
	}
	if o.Mode == Sleep {
		// Ranks stand for processes: one that sleeps in the kernel shall not hold up the others.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), o.Ranks+2)))
	}
	errs := make([]error, o.Ranks)
	var wg sync.WaitGroup
	for p, r := range ranks {
		wg.Go(func() { errs[p] = r.run(&o) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return o.report(ranks), nil
}

func (o Options) defaults() Options {
	if o.Ranks == 0 {
		o.Ranks = 8
	}
	if o.Rounds == 0 {
		o.Rounds = 2000
	}
	if o.Warmup == 0 {
		o.Warmup = 200
	}
	if o.Mode == "" {
		o.Mode = Spin
	}
	if o.Name == "" {
		o.Name = "shared memory"
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	return o
}

// device is where it is told to be, at once.
type device struct{ at circuit.Permutation }

func (d *device) Switch(_ int, m controller.Move) error { d.at = m.To; return nil }
func (d *device) Map(int) (circuit.Permutation, error)  { return d.at, nil }

// startCore starts the controller of one plane.
func startCore(ranks int) (*controller.Core, error) {
	return controller.Start(controller.Config{
		Name: "barrier", Ports: ranks, Planes: make([]controller.PlaneConfig, 1), Device: &device{circuit.Shift(ranks, 1)},
	})
}

// serveHere starts a controller in this process, reached through shared memory.
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
	return func(p int) (ocsctl.Client, error) { return local.Dial(socket, p, local.DialOptions{}) }, stop, nil
}

// rank is one port's part.
type rank struct {
	client       ocsctl.Client
	bell         *shmring.Doorbell // of local clients
	news         chan struct{}     // of others
	maps         [2]circuit.Permutation
	posted, seen []int64
}

func newRank(c ocsctl.Client, o *Options) *rank {
	n := o.Warmup + o.Rounds
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

// origin is when this process began to count, monotonic.
var origin = time.Now()

func clock() int64 { return int64(time.Since(origin)) }

// holder is the communicator that the ranks are.
const holder = 1

// run goes through all rounds, on a plane that one of the ranks holds.
func (r *rank) run(o *Options) error {
	first := r.client.State(0).Epoch
	for k := range r.posted {
		epoch := first + uint32(k)
		r.posted[k] = clock()
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
			if clock()-r.posted[k] > int64(o.Timeout) {
				return fmt.Errorf("barrier: port %d plane 0 epoch %d: not switched in %v", r.client.Port(), epoch, o.Timeout)
			}
			r.wait(epoch)
		}
		r.seen[k] = clock()
	}
	return nil
}

// wait returns when it is worth to look again, or a little later.
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
	all, each := make([]int64, 0, o.Rounds), make([]int64, 0, o.Rounds*len(ranks))
	for k := o.Warmup; k < o.Warmup+o.Rounds; k++ {
		last, end := int64(0), int64(0)
		for _, r := range ranks {
			last, end = max(last, r.posted[k]), max(end, r.seen[k])
		}
		all = append(all, end-last)
		for _, r := range ranks {
			each = append(each, r.seen[k]-last)
		}
	}
	took := ranks[0].seen[o.Warmup+o.Rounds-1] - ranks[0].posted[o.Warmup]
	return &Report{
		Name: o.Name, Mode: o.Mode, Ranks: o.Ranks, Rounds: o.Rounds, CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		All: QuantilesOf(all), Each: QuantilesOf(each), Period: time.Duration(took / int64(o.Rounds)), Histogram: HistogramOf(all),
	}
}

// QuantilesOf sorts ns, which must not be empty, and returns its quantiles.
func QuantilesOf(ns []int64) Quantiles {
	slices.Sort(ns)
	at := func(q float64) time.Duration { return time.Duration(ns[int(q*float64(len(ns)-1))]) }
	return Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

// HistogramOf counts in buckets a quarter of a power of two wide; ns is sorted.
func HistogramOf(ns []int64) []Bucket {
	var buckets []Bucket
	for below, i := 1000.0, 0; i < len(ns); below *= 1.189207115002721 {
		b := Bucket{Below: time.Duration(below)}
		for ; i < len(ns) && ns[i] < int64(below); i++ {
			b.Count++
		}
		if b.Count > 0 || len(buckets) > 0 {
			buckets = append(buckets, b)
		}
	}
	return buckets
}
