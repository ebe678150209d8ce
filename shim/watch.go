package shim

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/log"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/status"
)

// watched are the communicators of this process that can be asked about, and where: a socket of
// this process, and NCCL's RAS port where this process was the first of its host to take it. Both
// are open while there are communicators; nothing is done unless somebody asks.
var watched struct {
	sync.Mutex
	comms  []*comm.Core
	server *status.Server
	ras    *status.RAS
}

// watch makes the communicator one that can be asked about, until unwatch.
func watch(c *comm.Core) {
	if c.Cfg.StatusDir == settings.StatusOff {
		return
	}
	watched.Lock()
	defer watched.Unlock()
	watched.comms = append(watched.comms, c)
	dir := StatusDir(c.Cfg)
	if watched.server == nil {
		s, err := status.Serve(dir, os.Getpid(), fmt.Sprintf("%x", processID()), source{})
		if err != nil {
			c.Log.Info(log.Init, "no status socket: %v", err)
			return
		}
		watched.server = s
	}
	if watched.ras == nil && c.Cfg.RAS {
		collect := func(d time.Duration) (*status.Report, error) { return status.Collect(dir, d) }
		ras, err := status.ServeRAS(rasAddress(c.Cfg.RASAddr), ABIVersion, collect)
		if err != nil {
			// As a rule another process of this host serves.
			c.Log.Info(log.Init, "%v", err)
			return
		}
		watched.ras = ras
		c.Log.Info(log.Init, "RAS client listening socket at %s", ras.Address())
	}
}

// unwatch is idempotent.
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

// StatusDir is where the sockets of the processes of this user are.
func StatusDir(cfg *settings.Config) string { return status.Dir(cfg.StatusDir, cfg.RuntimeDir) }

// rasAddress spares the default a look into the name service.
func rasAddress(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "localhost" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// watching returns the communicators that can be asked about.
func watching() []*comm.Core {
	watched.Lock()
	defer watched.Unlock()
	return slices.Clone(watched.comms)
}

// source is this process, for those who ask.
type source struct{}

// Status implements status.Source.
func (source) Status() status.Process {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	p := status.Process{Version: Version, Host: host, Node: node(hostID(), pidNamespace()), PID: os.Getpid(), Comms: []status.Comm{}}
	comms := watching()
	for _, c := range comms {
		s := describeComm(c)
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
			return probe(c, d)
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
