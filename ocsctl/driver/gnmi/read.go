package gnmi

import (
	"context"
	"fmt"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/internal/brief"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/plans/circuit"
)

// get reads whole tables.
func (s *swtch) get(ctx context.Context, tables ...*dialect.Table) (*dialect.Store, error) {
	var paths []*gpb.Path
	asked := make(map[string]bool)
	for _, t := range tables {
		p := s.words.ReadPath(t)
		if name := dialect.String(p.GetElem()); !asked[name] {
			asked[name] = true
			paths = append(paths, p)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	store := dialect.NewStore(s.words)
	for _, group := range s.words.Roots(paths) {
		if err := s.into(ctx, store, group); err != nil {
			return nil, s.fault(err)
		}
	}
	return store, nil
}

// into reads paths into a store. Some switches answer NotFound for an empty table. Then into requests each path
// separately.
func (s *swtch) into(ctx context.Context, store *dialect.Store, paths []*gpb.Path) error {
	r, err := s.client.Get(ctx, &gpb.GetRequest{Path: paths, Encoding: gpb.Encoding_JSON_IETF})
	if status.Code(err) == codes.NotFound {
		if len(paths) == 1 {
			return nil
		}
		for _, p := range paths {
			if err := s.into(ctx, store, []*gpb.Path{p}); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, n := range r.GetNotification() {
		if err := store.Notify(n); err != nil {
			return fmt.Errorf("%w: %w", driver.ErrProtocol, err)
		}
	}
	return nil
}

// fault returns an error of an RPC as one line with the switch's name. A message that is too large is a violation of
// the protocol.
func (s *swtch) fault(err error) error {
	switch {
	case err == nil:
		return nil
	case s.closed.Load():
		return fmt.Errorf("gnmi: %w", driver.ErrClosed)
	}
	st, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("gnmi: %s: %w", s.endpoint, err)
	}
	text := fmt.Sprintf("%v: %s", st.Code(), brief.Line(st.Message()))
	switch st.Code() {
	case codes.Canceled:
		return fmt.Errorf("gnmi: %s: %s: %w", s.endpoint, text, context.Canceled)
	case codes.DeadlineExceeded:
		return fmt.Errorf("gnmi: %s: %s: %w", s.endpoint, text, context.DeadlineExceeded)
	case codes.ResourceExhausted, codes.Unimplemented:
		return fmt.Errorf("gnmi: %s: %w: %s", s.endpoint, driver.ErrProtocol, text)
	default:
		return fmt.Errorf("gnmi: %s: %s", s.endpoint, text)
	}
}

// table reads the tables from which the map follows.
func (s *swtch) table(ctx context.Context) (*dialect.Store, error) {
	if len(s.words.Status.Entry) == 0 {
		return s.get(ctx, &s.words.Config, &s.words.Ports)
	}
	return s.get(ctx, &s.words.Config, &s.words.Status)
}

// permutation returns the map of the reported circuits. If a port has two, it returns the valid part and an error that
// wraps driver.ErrNotMatching.
func (s *swtch) permutation(all []dialect.Circuit) (circuit.Permutation, error) {
	p := circuit.AllDark(len(s.ports.In))
	from := make([]bool, len(p))
	var bad error
	for _, c := range all {
		if !c.Reported {
			continue
		}
		in, ours1 := s.in[c.In]
		out, ours2 := s.out[c.Out]
		switch {
		case !ours1 && !ours2 || s.reversed(c):
		case ours1 != ours2:
			bad = fmt.Errorf("gnmi: %w: %q goes to %q, and only one of them is of this map", driver.ErrNotMatching,
				brief.Line(c.In), brief.Line(c.Out))
		case p[in] != circuit.Dark || from[out]:
			bad = fmt.Errorf("gnmi: %w: %q to %q is a second circuit", driver.ErrNotMatching, c.In, c.Out)
		default:
			p[in], from[out] = out, true
		}
	}
	return p, bad
}

// reversed reports whether a circuit is one of this map's, reported from its egress port.
func (s *swtch) reversed(c dialect.Circuit) bool {
	_, a := s.out[c.In]
	_, b := s.in[c.Out]
	return a && b && !c.Configured
}
