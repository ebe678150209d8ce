package report

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/log"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/status"
)

// abiVersion is the version of NCCL whose interface cgo/front implements. NCCL's RAS protocol carries it.
const abiVersion = "2.32.3"

// watched holds the communicators that this process serves, and the servers: a socket of the process, and NCCL's RAS
// port if this process was the first on its host to take it. Both are open while there are communicators, and only
// answer questions.
var watched struct {
	sync.Mutex
	comms  []*comm.Core
	server *status.Server
	ras    *status.RAS
}

// Watch serves the status of a communicator until it ends.
func Watch(c *comm.Core) {
	if c.Cfg.Status.Dir == settings.StatusOff {
		return
	}
	watched.Lock()
	defer watched.Unlock()
	watched.comms = append(watched.comms, c)
	dir := StatusDir(c.Cfg)
	if watched.server == nil {
		s, err := status.Serve(dir, os.Getpid(), fmt.Sprintf("%x", bootstrap.ProcessID()), source{})
		if err != nil {
			c.Log.Info(log.Init, "no status socket: %v", err)
			return
		}
		watched.server = s
	}
	if watched.ras == nil && c.Cfg.Status.RAS {
		collect := func(d time.Duration) (*status.Report, error) { return status.Collect(dir, d) }
		ras, err := status.ServeRAS(rasAddress(c.Cfg.Status.RASAddr), abiVersion, collect)
		if err != nil {
			// Most often another process of this host serves.
			c.Log.Info(log.Init, "%v", err)
			return
		}
		watched.ras = ras
		c.Log.Info(log.Init, "RAS client listening socket at %s", ras.Address())
	}
}

// unwatch ends [Watch]. Idempotent.
func unwatch(c *comm.Core) {
	watched.Lock()
	defer watched.Unlock()
	i := slices.Index(watched.comms, c)
	if i < 0 {
		return
	}
	watched.comms = slices.Delete(watched.comms, i, i+1)
	if len(watched.comms) > 0 {
		return
	}
	if watched.server != nil {
		watched.server.Close()
		watched.server = nil
	}
	if watched.ras != nil {
		watched.ras.Close()
		watched.ras = nil
	}
}

// StatusDir returns the directory with the sockets of the processes of this user.
func StatusDir(cfg *settings.Config) string { return status.Dir(cfg.Status.Dir, cfg.Status.RuntimeDir) }

// rasAddress replaces localhost by its address, to avoid a name service.
func rasAddress(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "localhost" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// watching returns the served communicators.
func watching() []*comm.Core {
	watched.Lock()
	defer watched.Unlock()
	return slices.Clone(watched.comms)
}

// source answers questions about this process.
type source struct{}

// Status implements status.Source.
func (source) Status() status.Process {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	p := status.Process{
		Version: bootstrap.Version, Host: host, Node: node(bootstrap.HostID(), bootstrap.PIDNamespace()), PID: os.Getpid(),
		Comms: []status.Comm{},
	}
	for _, c := range watching() {
		s := describe(c)
		// Ranks of one communicator in one process are one communicator.
		if i := slices.IndexFunc(p.Comms, func(o status.Comm) bool { return o.ID == s.ID }); i >= 0 {
			p.Comms[i].Take(s.Ranks)
			continue
		}
		p.Comms = append(p.Comms, s)
	}
	return p
}

// Gather implements status.Source.
func (source) Gather(id string, d time.Duration) []status.Rank {
	for _, c := range watching() {
		if c.Joined() && fmt.Sprintf("%x", c.ID) == id {
			return AskAll(c, d)
		}
	}
	return nil
}

// Dump implements status.Source.
func (source) Dump() [][]byte {
	var all [][]byte
	for _, c := range watching() {
		if text, err := recorder.Dump(c); err == nil {
			all = append(all, text)
		}
	}
	return all
}
