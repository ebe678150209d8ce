package rpc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// watchQueue is how far a watcher may fall behind.
const watchQueue = 1024

// operators implements the service of that name.
type operators struct {
	ocspb.UnimplementedOperatorsServer
	server *Server
}

// Status returns the controller's snapshot.
func (o *operators) Status(context.Context, *ocspb.StatusRequest) (*ocspb.Snapshot, error) {
	core, err := o.server.inCharge()
	if err != nil {
		return nil, err
	}
	s, err := core.Snapshot()
	if err != nil {
		return nil, err
	}
	return toSnapshot(&s), nil
}

// History streams events of the past, newest first.
func (o *operators) History(m *ocspb.HistoryRequest, stream grpc.ServerStreamingServer[ocspb.Event]) error {
	if o.server.o.History == nil {
		return fmt.Errorf("history: controller %s keeps none: %w", o.server.o.Name, ErrForbidden)
	}
	q := controller.Query{Plane: controller.AnyPlane, Since: fromNano(m.GetSinceUnixNano()), Before: m.GetBeforeSeq(),
		Limit: int(min(m.GetLimit(), maxHistoryEvents)), Ports: fromPorts(m.GetPorts())}
	if m.Plane != nil {
		if err := o.server.checkPlane(m.GetPlane()); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		q.Plane = int(m.GetPlane())
	}
	for _, k := range m.GetKinds() {
		q.Kinds = append(q.Kinds, controller.EventKind(k))
	}
	events, err := o.server.o.History.History(stream.Context(), q)
	if err != nil {
		return err
	}
	for i := range events {
		if err := stream.Send(toEvent(&events[i])); err != nil {
			return err
		}
	}
	return nil
}

// Watch streams events as they happen.
func (o *operators) Watch(_ *ocspb.WatchRequest, stream grpc.ServerStreamingServer[ocspb.Event]) error {
	core, err := o.server.inCharge()
	if err != nil {
		return err
	}
	events := make(chan controller.Event, watchQueue)
	slow := make(chan struct{}, 1)
	cancel := core.Watch(func(e controller.Event) {
		select {
		case events <- e:
		default:
			select {
			case slow <- struct{}{}:
			default:
			}
		}
	})
	defer cancel()
	// The header tells the watcher that nothing from now on is missed.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case e := <-events:
			if err := stream.Send(toEvent(&e)); err != nil {
				return err
			}
		case <-slow:
			return fmt.Errorf("watch: %d events behind: %w", watchQueue, ErrSlow)
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Ports returns the ports of a plane.
func (o *operators) Ports(_ context.Context, m *ocspb.PortsRequest) (*ocspb.PortsReply, error) {
	if err := o.server.checkPlane(m.GetPlane()); err != nil {
		return nil, err
	}
	core, err := o.server.inCharge()
	if err != nil {
		return nil, err
	}
	ports, err := core.Ports(int(m.GetPlane()))
	return toPortStates(ports), err
}

// SetBaseline makes the present power of ports their baseline.
func (o *operators) SetBaseline(ctx context.Context, m *ocspb.SetBaselineRequest) (*ocspb.SetBaselineReply, error) {
	if len(m.GetPorts()) > controller.MaxPorts {
		return nil, fmt.Errorf("baseline: %d ports: %w", len(m.GetPorts()), ErrProtocol)
	}
	err := o.operate(ctx, m.GetPlane(), m.GetWho(), func(c controller.Controller, plane int, who string) error {
		return c.SetBaseline(plane, fromPorts(m.GetPorts()), m.GetDrop(), who)
	})
	return &ocspb.SetBaselineReply{}, err
}

// Remap moves a port of a plane to another port of its switch.
func (o *operators) Remap(ctx context.Context, m *ocspb.RemapRequest) (*ocspb.RemapReply, error) {
	to := oneLine(m.GetTo())
	err := o.operate(ctx, m.GetPlane(), m.GetWho(), func(c controller.Controller, plane int, who string) error {
		return c.Remap(plane, int(m.GetPort()), to, who)
	})
	return &ocspb.RemapReply{}, err
}

// Set gives planes maps.
func (o *operators) Set(ctx context.Context, m *ocspb.SetRequest) (*ocspb.SetReply, error) {
	c := controller.Change{DryRun: m.GetDryRun(), ConfirmWithin: time.Duration(m.GetConfirmWithinNs())}
	var numbers []uint32
	for _, p := range m.GetPlanes() {
		part := controller.PlaneChange{Plane: int(p.GetPlane())}
		var err error
		if part.Target, err = fromMap(p.GetTarget(), o.server.o.Ports); err != nil {
			return nil, fmt.Errorf("set: plane %d: %w", p.GetPlane(), err)
		}
		if len(p.GetIfCurrent()) > 0 {
			if part.IfCurrent, err = fromMap(p.GetIfCurrent(), o.server.o.Ports); err != nil {
				return nil, fmt.Errorf("set: plane %d: current: %w", p.GetPlane(), err)
			}
		}
		numbers, c.Planes = append(numbers, p.GetPlane()), append(c.Planes, part)
	}
	names, err := o.server.allowedPlanes(ctx, numbers...)
	if err != nil {
		return nil, err
	}
	return &ocspb.SetReply{}, o.run(ctx, "planes "+strings.Join(names, ","), m.GetWho(),
		func(core controller.Controller, who string) error { return core.Change(c, who) })
}

// Confirm keeps a change.
func (o *operators) Confirm(ctx context.Context, m *ocspb.ConfirmRequest) (*ocspb.ConfirmReply, error) {
	err := o.operate(ctx, m.GetPlane(), m.GetWho(), controller.Controller.Confirm)
	return &ocspb.ConfirmReply{}, err
}

// Enable puts a plane back into service.
func (o *operators) Enable(ctx context.Context, m *ocspb.EnableRequest) (*ocspb.EnableReply, error) {
	err := o.operate(ctx, m.GetPlane(), m.GetWho(), controller.Controller.Enable)
	return &ocspb.EnableReply{}, err
}

// Disable takes a plane out of service.
func (o *operators) Disable(ctx context.Context, m *ocspb.DisableRequest) (*ocspb.DisableReply, error) {
	reason := oneLine(m.GetReason())
	err := o.operate(ctx, m.GetPlane(), m.GetWho(), func(c controller.Controller, plane int, who string) error {
		return c.Disable(plane, reason, who)
	})
	return &ocspb.DisableReply{}, err
}

// BeginJob reserves ports for a job and sets its circuits.
func (o *operators) BeginJob(ctx context.Context, m *ocspb.BeginJobRequest) (*ocspb.BeginJobReply, error) {
	j := fromJob(m.GetJob())
	if j == nil {
		return nil, fmt.Errorf("begin job: no job: %w", ErrProtocol)
	}
	if err := allowedJobs(ctx); err != nil {
		return nil, fmt.Errorf("begin job: %w", err)
	}
	var maps []circuit.Permutation
	if m.GetSet() {
		maps = make([]circuit.Permutation, len(m.GetMaps()))
		for plane, part := range m.GetMaps() {
			if len(part.GetTo()) == 0 {
				continue
			}
			var err error
			if maps[plane], err = fromMap(part.GetTo(), len(j.Ports)); err != nil {
				return nil, fmt.Errorf("begin job %s: plane %d: %w", j.ID, plane, err)
			}
		}
	}
	return &ocspb.BeginJobReply{}, o.run(ctx, "job "+j.ID, j.Who, func(c controller.Controller, who string) error {
		j.Who = who
		return c.BeginJob(*j, maps)
	})
}

// EndJob gives the ports of a job back.
func (o *operators) EndJob(ctx context.Context, m *ocspb.EndJobRequest) (*ocspb.EndJobReply, error) {
	if err := allowedJobs(ctx); err != nil {
		return nil, fmt.Errorf("end job: %w", err)
	}
	id := oneLine(m.GetId())
	return &ocspb.EndJobReply{}, o.run(ctx, "job "+id, m.GetWho(), func(c controller.Controller, who string) error {
		return c.EndJob(id, who)
	})
}

// operate runs a command on a plane.
func (o *operators) operate(ctx context.Context, plane uint32, name string,
	command func(c controller.Controller, plane int, who string) error) error {
	names, err := o.server.allowedPlanes(ctx, plane)
	if err != nil {
		return err
	}
	return o.run(ctx, "plane "+names[0], name, func(c controller.Controller, who string) error {
		return command(c, int(plane), who)
	})
}

// run runs a command, which goes on by itself where the operator stops waiting.
func (o *operators) run(ctx context.Context, what, name string,
	command func(c controller.Controller, who string) error) error {
	core, err := o.server.inCharge()
	if err != nil {
		return err
	}
	by := who(ctx)
	if name != "" {
		by = oneLine(name) + ", " + by
	}
	done := make(chan error, 1)
	go func() { done <- command(core, by) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: the command goes on: %w", what, ctx.Err())
	}
}
