package emulator

import (
	"errors"
	"sync"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
)

// Server is a running switch: a controller with circuits in memory, served to the ranks of this
// host. Safe for concurrent use.
type Server struct {
	socket   string
	core     *controller.Core
	local    *local.Server
	circuits *circuits // the core's
	log      *frameLog
	closed   sync.Once
	closeErr error
}

// Start makes a switch and serves it until Close. It replaces the socket of a switch that has ended; if that switch
// still runs, it returns local.ErrRunning.
func Start(config Config) (*Server, error) {
	cfg, err := config.complete()
	if err != nil {
		return nil, err
	}
	s := &Server{socket: cfg.Socket}
	if cfg.FrameLog != "" {
		if s.log, err = newFrameLog(cfg.FrameLog, cfg.Ports, len(cfg.Planes)); err != nil {
			return nil, err
		}
	}
	s.circuits = newCircuits(cfg, s.log)
	cc := cfg.controller()
	cc.DataPath = s.circuits
	if s.core, err = controller.Start(cc); err == nil {
		s.local, err = local.Serve(s.core, local.Options{
			Socket: cfg.Socket, DataPlane: ocsctl.DataMemory, Version: cfg.Version, Rings: s.circuits,
		})
	}
	if err != nil {
		_ = s.Close() // the first error counts
		return nil, err
	}
	return s, nil
}

// Core returns the switch's controller, for further front ends. The caller closes them before the switch.
func (s *Server) Core() *controller.Core { return s.core }

// Stats returns the counters of every plane.
func (s *Server) Stats() ([]PlaneStats, error) {
	var all []PlaneStats
	err := s.core.Do(func(int64) {
		for _, pl := range s.circuits.planes {
			all = append(all, pl.stats)
		}
	})
	return all, err
}

// Close disconnects every rank, completes the log and removes the socket. It returns the first error in writing the
// log. Idempotent.
func (s *Server) Close() error {
	s.closed.Do(func() {
		if s.local != nil {
			s.local.Close()
		}
		if s.core != nil {
			s.core.Close()
		}
		if s.log != nil {
			s.closeErr = s.log.close()
		}
	})
	return s.closeErr
}

var errNoRings = errors.New("the controller's planes are not in its memory")
