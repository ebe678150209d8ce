package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"lightpath/internal/files"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/log"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/status"
)

const (
	// metricsInterval is how often a file of metrics is written, more often than Prometheus asks node_exporter.
	metricsInterval = 10 * time.Second
	// metricsLeft is the age at which the file of a process that has ended is removed.
	metricsLeft = time.Hour
	// maxEnded bounds the communicators that have ended in a file of metrics.
	maxEnded = 64
)

// metricsFile is the file of LIGHTPATH_METRICS of this process.
type metricsFile struct {
	settings.Metrics
	path string

	mu    sync.Mutex
	comms []*comm.Core
	ended []status.Comm // the last values of communicators that have ended
	stop  chan struct{} // ends run; nil: it does not run
	log   *log.Logger   // of the last communicator

	writing sync.Mutex // while the file is written, so that no older values replace newer ones; before mu
	warned  bool
}

// metricsFiles has a *metricsFile for each value of LIGHTPATH_METRICS: one, unless the program changes it.
var metricsFiles sync.Map

// WriteMetrics makes this process write the metrics of a communicator if LIGHTPATH_METRICS says so, until the
// communicator ends. Call it when the communicator has been made, before its first operation.
func WriteMetrics(c *comm.Core) {
	if c.Cfg.Metrics.Dir == "" {
		return
	}
	recorder.Of(c).Measure(c.Ranks)
	kind := "prom"
	if c.Cfg.Metrics.JSON {
		kind = "jsonl"
	}
	path := filepath.Join(c.Cfg.Metrics.Dir, fmt.Sprintf("lightpath-%s-%d.%s", c.Log.Host, c.Log.PID, kind))
	known, _ := metricsFiles.LoadOrStore(c.Cfg.Metrics, &metricsFile{Metrics: c.Cfg.Metrics, path: path})
	f := known.(*metricsFile)
	c.AddHooks(comm.Hooks{Detach: func() { f.end(c) }})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.comms, f.log = append(f.comms, c), c.Log
	if f.stop == nil {
		f.stop = make(chan struct{})
		go f.run(f.stop)
	}
}

// run writes the file at once and then at intervals.
func (f *metricsFile) run(stop <-chan struct{}) {
	f.removeOld()
	tick := time.NewTicker(metricsInterval)
	defer tick.Stop()
	for {
		f.write(stop)
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// end writes the last values of a communicator, before the program can end.
func (f *metricsFile) end(c *comm.Core) {
	last := ownMetrics(c)
	last.Ranks[0].Op = nil
	f.mu.Lock()
	f.comms = slices.DeleteFunc(f.comms, func(o *comm.Core) bool { return o == c })
	f.ended = append(f.ended, last)
	f.ended = f.ended[max(0, len(f.ended)-maxEnded):]
	if len(f.comms) == 0 {
		close(f.stop)
		f.stop = nil
	}
	f.mu.Unlock()
	f.write(nil)
}

// write replaces the file, unless stop is closed. The first failure is a warning.
func (f *metricsFile) write(stop <-chan struct{}) {
	f.writing.Lock()
	defer f.writing.Unlock()
	select {
	case <-stop:
		return
	default:
	}
	f.mu.Lock()
	all, live, to := slices.Clone(f.ended), slices.Clone(f.comms), f.log
	f.mu.Unlock()
	for _, c := range live {
		all = append(all, ownMetrics(c))
	}
	text, err := f.encode(all)
	if err == nil {
		err = os.MkdirAll(f.Dir, 0o755)
	}
	if err == nil {
		err = files.Write(f.path, text, 0o644)
	}
	if err != nil && !f.warned {
		f.warned = true
		to.Notice("LIGHTPATH_METRICS: the job goes on without metrics: %v", err)
	}
}

// encode returns the content of the file: as JSON a line per communicator.
func (f *metricsFile) encode(all []status.Comm) (text []byte, err error) {
	if !f.JSON {
		return status.Metrics(all), nil
	}
	for i := range all {
		line, err := json.Marshal(&all[i])
		if err != nil {
			return nil, err
		}
		text = append(append(text, line...), '\n')
	}
	return text, nil
}

// removeOld removes files that their processes have left for node_exporter, which would show them for ever. Processes
// that run write theirs at intervals.
func (f *metricsFile) removeOld() {
	all, _ := os.ReadDir(f.Dir)
	for _, entry := range all {
		info, err := entry.Info()
		if ours, _ := filepath.Match("lightpath-*-[0-9]*.prom", entry.Name()); ours && err == nil &&
			time.Since(info.ModTime()) > metricsLeft {
			os.Remove(filepath.Join(f.Dir, entry.Name()))
		}
	}
}

// ownMetrics describes this rank of a communicator that has been made. It does not block.
func ownMetrics(c *comm.Core) status.Comm {
	totals := recorder.Of(c).Totals() // before the calls are counted: these are as many at least
	r, _ := ownState(c)
	if r.State == status.Making {
		r.State = status.Healthy // in a moment
	}
	r.Totals = totals
	return status.Comm{ID: fmt.Sprintf("%x", c.ID), Name: c.Name, Size: c.Ranks, Circuits: circuits.Of(c) != nil,
		Ranks: []status.Rank{r}}
}
