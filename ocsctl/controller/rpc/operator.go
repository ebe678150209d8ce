package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"google.golang.org/grpc"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// Operator is an operator's connection to the controllers of a fabric. Commands go to the one in
// charge. Safe for concurrent use.
type Operator struct {
	endpoints []*endpoint
	conns     []*grpc.ClientConn
}

var _ controller.History = (*Operator)(nil)

// DialOperator prepares connections to the endpoints (host:port); it does not connect yet.
func DialOperator(endpoints []string, o Options) (*Operator, error) {
	all, err := newEndpoints(endpoints, &o)
	if err != nil {
		return nil, err
	}
	op := &Operator{endpoints: all}
	for _, e := range all {
		conn, err := e.dial()
		if err != nil {
			_ = op.Close()
			return nil, fmt.Errorf("rpc: endpoint %s: %w", e.address, err)
		}
		op.conns = append(op.conns, conn)
	}
	return op, nil
}

// Close ends the connections.
func (o *Operator) Close() error {
	for _, c := range o.conns {
		_ = c.Close()
	}
	return nil
}

// each has call tried at one endpoint after the other, until one answers for itself. The error
// names them all.
func (o *Operator) each(ctx context.Context, call func(ocspb.OperatorsClient) error) error {
	failed := &remoteError{}
	var why []string
	for i, conn := range o.conns {
		err := tidy(fromStatus(call(ocspb.NewOperatorsClient(conn))))
		if err == nil {
			return nil
		}
		at := o.endpoints[i].address
		if strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()) { // gRPC keeps the text only
			why = append(why, fmt.Sprintf("no controller listens at %s: is lightpath ocsd running? (%v)", at, err))
		} else {
			why = append(why, fmt.Sprintf("%s: %v", at, err))
		}
		failed.wraps = append(failed.wraps, err)
		if ctx.Err() != nil {
			break
		}
	}
	failed.text = "rpc: " + strings.Join(why, "; ")
	return failed
}

// Status returns the snapshot of the controller in charge.
func (o *Operator) Status(ctx context.Context) (controller.Snapshot, error) {
	s, _, err := o.inCharge(ctx)
	return s, err
}

// inCharge finds the controller in charge.
func (o *Operator) inCharge(ctx context.Context) (s controller.Snapshot, at ocspb.OperatorsClient, err error) {
	err = o.each(ctx, func(c ocspb.OperatorsClient) error {
		m, err := c.Status(ctx, &ocspb.StatusRequest{})
		if err != nil {
			return err
		}
		at = c
		s, err = fromSnapshot(m)
		return err
	})
	return s, at, err
}

// History implements controller.History; any controller will do.
func (o *Operator) History(ctx context.Context, q controller.Query) ([]controller.Event, error) {
	if q.Limit < 0 {
		return nil, fmt.Errorf("rpc: history: limit %d", q.Limit)
	}
	m := &ocspb.HistoryRequest{SinceUnixNano: toNano(q.Since), Limit: uint32(min(q.Limit, maxHistoryEvents)),
		BeforeSeq: q.Before, Ports: toPorts(q.Ports)}
	if q.Plane != controller.AnyPlane {
		plane := uint32(q.Plane)
		m.Plane = &plane
	}
	for _, k := range q.Kinds {
		m.Kinds = append(m.Kinds, string(k))
	}
	var all []controller.Event
	err := o.each(ctx, func(c ocspb.OperatorsClient) error {
		all = nil
		stream, err := c.History(ctx, m)
		if err != nil {
			return err
		}
		return receive(stream, func(e controller.Event) { all = append(all, e) })
	})
	return all, err
}

// Watch calls started (unless it is nil), then f with every later event, until ctx or the connection ends.
func (o *Operator) Watch(ctx context.Context, started func(), f func(controller.Event)) error {
	_, at, err := o.inCharge(ctx)
	if err != nil {
		return err
	}
	stream, err := at.Watch(ctx, &ocspb.WatchRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	if err == nil {
		if started != nil {
			started()
		}
		err = receive(stream, f)
	}
	return fmt.Errorf("rpc: watch: %w: %w", ocsctl.ErrControlLost, fromStatus(err))
}

// receive hands out the events of a stream; nil at its end.
func receive(stream grpc.ServerStreamingClient[ocspb.Event], f func(controller.Event)) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e, err := fromEvent(m)
		if err != nil {
			return err
		}
		f(e)
	}
}

// command runs one at the controller in charge: at none other, as it may have been carried out
// where its answer was lost.
func (o *Operator) command(ctx context.Context, what string, plane int,
	call func(ocspb.OperatorsClient, uint32) error) error {
	if plane < 0 || plane >= controller.MaxPlanes {
		return fmt.Errorf("rpc: %s: plane %d", what, plane)
	}
	_, at, err := o.inCharge(ctx)
	if err != nil {
		return err
	}
	if err := fromStatus(call(at, uint32(plane))); err != nil {
		return fmt.Errorf("rpc: %s: %w", what, err)
	}
	return nil
}

// Ports returns the ports of a plane at its switch.
func (o *Operator) Ports(ctx context.Context, plane int) (ports []controller.PortState, err error) {
	err = o.command(ctx, "ports", plane, func(c ocspb.OperatorsClient, plane uint32) error {
		m, err := c.Ports(ctx, &ocspb.PortsRequest{Plane: plane})
		ports = fromPortStates(m)
		return err
	})
	return ports, err
}

// SetBaseline makes the present power of ports their baseline; see [controller.Controller]. The history names the
// operator, who.
func (o *Operator) SetBaseline(ctx context.Context, plane int, ports []int, drop float64, who string) error {
	return o.command(ctx, "baseline", plane, func(c ocspb.OperatorsClient, plane uint32) error {
		_, err := c.SetBaseline(ctx, &ocspb.SetBaselineRequest{Plane: plane, Ports: toPorts(ports), Drop: drop, Who: who})
		return err
	})
}

// Remap moves a port of a plane to another port of its switch.
func (o *Operator) Remap(ctx context.Context, plane, port int, to, who string) error {
	return o.command(ctx, "remap", plane, func(c ocspb.OperatorsClient, plane uint32) error {
		_, err := c.Remap(ctx, &ocspb.RemapRequest{Plane: plane, Port: uint32(port), To: to, Who: who})
		return err
	})
}

// Set gives a free plane a map and returns when the plane has settled.
func (o *Operator) Set(ctx context.Context, plane int, target circuit.Permutation, who string) error {
	return o.Change(ctx, controller.Change{Planes: []controller.PlaneChange{{Plane: plane, Target: target}}}, who)
}

// Change gives planes maps, as one change, and returns when they have settled.
func (o *Operator) Change(ctx context.Context, change controller.Change, who string) error {
	m := &ocspb.SetRequest{Who: who, DryRun: change.DryRun, ConfirmWithinNs: int64(change.ConfirmWithin)}
	for _, p := range change.Planes {
		m.Planes = append(m.Planes, &ocspb.PlaneMap{Plane: uint32(p.Plane), Target: toMap(p.Target),
			IfCurrent: toMap(p.IfCurrent)})
	}
	return o.command(ctx, "set", 0, func(c ocspb.OperatorsClient, _ uint32) error {
		_, err := c.Set(ctx, m)
		return err
	})
}

// Confirm keeps a change that the controller would undo otherwise; plane is one of its planes.
func (o *Operator) Confirm(ctx context.Context, plane int, who string) error {
	return o.command(ctx, "confirm", plane, func(c ocspb.OperatorsClient, plane uint32) error {
		_, err := c.Confirm(ctx, &ocspb.ConfirmRequest{Plane: plane, Who: who})
		return err
	})
}

// Enable puts a plane back into service.
func (o *Operator) Enable(ctx context.Context, plane int, who string) error {
	return o.command(ctx, "enable", plane, func(c ocspb.OperatorsClient, plane uint32) error {
		_, err := c.Enable(ctx, &ocspb.EnableRequest{Plane: plane, Who: who})
		return err
	})
}

// Disable takes a plane out of service for new grants.
func (o *Operator) Disable(ctx context.Context, plane int, reason, who string) error {
	return o.command(ctx, "disable", plane, func(c ocspb.OperatorsClient, plane uint32) error {
		_, err := c.Disable(ctx, &ocspb.DisableRequest{Plane: plane, Reason: reason, Who: who})
		return err
	})
}

// BeginJob reserves ports for a job, sets its circuits if maps is not nil, and returns when they have settled. The
// history names the operator, j.Who. See [controller.Controller].
func (o *Operator) BeginJob(ctx context.Context, j controller.Job, maps []circuit.Permutation) error {
	m := &ocspb.BeginJobRequest{Job: toJob(&j), Set: maps != nil}
	for _, part := range maps {
		m.Maps = append(m.Maps, &ocspb.RankMap{To: toMap(part)})
	}
	return o.command(ctx, "begin job", 0, func(c ocspb.OperatorsClient, _ uint32) error {
		_, err := c.BeginJob(ctx, m)
		return err
	})
}

// EndJob gives the ports of a job back. A job that has ended already is no error.
func (o *Operator) EndJob(ctx context.Context, id, who string) error {
	return o.command(ctx, "end job", 0, func(c ocspb.OperatorsClient, _ uint32) error {
		_, err := c.EndJob(ctx, &ocspb.EndJobRequest{Id: id, Who: who})
		return err
	})
}
