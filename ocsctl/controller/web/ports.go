package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"lightpath/ocsctl/controller"
)

// PortsPage is the answer of /api/ports.
type PortsPage struct {
	Plane int                    `json:"plane"`
	Name  string                 `json:"name"`
	Ports []controller.PortState `json:"ports"` // by port; null if the plane's device does not report them
}

// readPortsPage returns the ports of the plane that the parameter plane names, or that has its number.
func (s *Server) readPortsPage(r *http.Request) (any, error) {
	j, err := s.parsePlane(r.URL.Query().Get("plane"))
	if err == nil && j == controller.AnyPlane {
		err = errors.New("which plane: ?plane=p0")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errQuery, err)
	}
	c, _ := s.o.Controller()
	ports, err := s.readPorts(r.Context(), c, j)
	return PortsPage{j, s.planeName(j), ports}, err
}

// readPorts asks the core for the ports of a plane. A core that does not answer costs portReaders goroutines at most.
func (s *Server) readPorts(ctx context.Context, c controller.Controller, plane int) (ports []controller.PortState,
	err error) {
	if c == nil {
		return nil, errStandby
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	select {
	case s.ports <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("web: the controller does not answer: %w", ctx.Err())
	}
	type answer struct {
		ports []controller.PortState
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-s.ports }()
		ports, err := c.Ports(plane)
		done <- answer{ports, err}
	}()
	select {
	case a := <-done:
		return a.ports, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("web: the controller does not answer: %w", ctx.Err())
	}
}
