package gnmi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver/gnmi/dialect"
)

// election is a master's 128-bit id.
type election struct{ high, low uint64 }

func (e election) below(f election) bool {
	return e.high < f.high || e.high == f.high && e.low < f.low
}

// arbitrate refuses masters below the highest seen of their role. It admits clients
// without an election ID, as SONiC does: arbitration is among clients that send one. The caller holds the lock.
func (s *server) arbitrate(extensions []*gnmi_ext.Extension) error {
	for _, x := range extensions {
		m := x.GetMasterArbitration()
		switch {
		case m == nil:
			continue
		case m.GetElectionId() == nil:
			return status.Error(codes.InvalidArgument, "arbitration without an election id")
		case m.GetRole() != nil && !s.words.Roles:
			return status.Error(codes.Unimplemented, "arbitration by role")
		}
		role, id := m.GetRole().GetId(), election{m.GetElectionId().GetHigh(), m.GetElectionId().GetLow()}
		if id.below(s.masters[role]) {
			return status.Error(codes.PermissionDenied, "a master with a higher election id writes here")
		}
		s.masters[role] = id
	}
	return nil
}

// Set implements gNMI: the request is one transaction, deletions before replacements before updates,
// and touches no circuit that is there before and after.
func (s *server) Set(ctx context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
	if err := s.up(); err != nil {
		return nil, err
	}
	if err := s.set(ctx, req); err != nil {
		return nil, err
	}
	r := &gpb.SetResponse{Prefix: req.GetPrefix(), Timestamp: time.Now().UnixNano()}
	for _, p := range req.GetDelete() {
		r.Response = append(r.Response, &gpb.UpdateResult{Path: p, Op: gpb.UpdateResult_DELETE})
	}
	for _, u := range req.GetReplace() {
		r.Response = append(r.Response, &gpb.UpdateResult{Path: u.GetPath(), Op: gpb.UpdateResult_REPLACE})
	}
	for _, u := range req.GetUpdate() {
		r.Response = append(r.Response, &gpb.UpdateResult{Path: u.GetPath(), Op: gpb.UpdateResult_UPDATE})
	}
	return r, s.answer(ctx)
}

func (s *server) set(ctx context.Context, req *gpb.SetRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.arbitrate(req.GetExtension()); err != nil {
		return err
	}
	if len(req.GetUnionReplace()) > 0 {
		return status.Error(codes.Unimplemented, "union_replace")
	}
	paths := slices.Clone(req.GetDelete())
	for _, u := range append(slices.Clone(req.GetReplace()), req.GetUpdate()...) {
		paths = append(paths, u.GetPath())
	}
	if err := s.oneRoot(req.GetPrefix(), paths); err != nil {
		return err
	}
	rows := s.d.Table()
	store := dialect.NewStore(s.words)
	store.Update(s.config(rows))
	written, err := s.edit(store, req)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	t := s.plan(rows, store, written)
	if len(t.bad) > 0 && !s.o.AcceptInvalid {
		id := slices.Min(slices.Collect(maps.Keys(t.bad)))
		return status.Errorf(codes.FailedPrecondition, "%s: %s", id, t.bad[id].reason)
	}
	return s.commit(ctx, t)
}

// edit applies a request to the configuration, and returns the paths of the entries that it writes.
func (s *server) edit(store *dialect.Store, req *gpb.SetRequest) (written map[string]bool, err error) {
	for _, p := range req.GetDelete() {
		at, err := s.words.Join(req.GetPrefix(), p)
		if err != nil {
			return nil, err
		}
		store.Delete(at)
	}
	written = make(map[string]bool)
	write := func(u *gpb.Update) error {
		leaves, err := s.words.Leaves(req.GetPrefix(), u)
		if err != nil {
			return err
		}
		for _, l := range leaves {
			entry, ok := s.words.Config.Writes(l)
			if !ok {
				return fmt.Errorf("%s: cannot be written", dialect.String(l.Elems))
			}
			written[entry] = true
		}
		store.Update(leaves)
		return nil
	}
	for _, u := range req.GetReplace() {
		at, err := s.words.Join(req.GetPrefix(), u.GetPath())
		if err != nil {
			return nil, err
		}
		store.Delete(at)
		if err := write(u); err != nil {
			return nil, err
		}
	}
	for _, u := range req.GetUpdate() {
		if err := write(u); err != nil {
			return nil, err
		}
	}
	return written, nil
}

// transaction holds the changes of a Set.
type transaction struct {
	remove, add []pair
	ids         []string           // of add
	bad         map[string]invalid // what cannot be made
	keep        map[string]invalid // circuits that were invalid and still are
}

// plan compares the requested configuration with the hardware. The caller holds the lock.
func (s *server) plan(rows []device.Connection, store *dialect.Store, written map[string]bool) transaction {
	t := transaction{bad: make(map[string]invalid), keep: make(map[string]invalid)}
	has := make(map[pair]bool, len(rows))
	for _, c := range rows {
		if !c.Ghost {
			has[pair{From: c.In, To: c.Out}] = true
		}
	}
	wanted := make(map[pair]bool)
	for _, c := range store.Circuits() {
		id := s.words.IDOf(c)
		in, knownIn := s.in[c.In]
		out, knownOut := s.out[c.Out]
		p := pair{From: in, To: out}
		switch old, was := s.invalid[id]; {
		case !written[dialect.String(c.Path)] && was:
			t.keep[id] = old
		case !knownIn || !knownOut:
			t.bad[id] = invalid{c.In, c.Out, fmt.Sprintf("no such ports: %q to %q", c.In, c.Out)}
		default:
			if wanted[p] = true; !has[p] {
				t.add, t.ids = append(t.add, p), append(t.ids, id)
			}
		}
	}
	for _, c := range rows {
		if p := (pair{From: c.In, To: c.Out}); !c.Ghost && !wanted[p] {
			t.remove = append(t.remove, p)
		}
	}
	s.check(&t)
	return t
}

// check moves circuits that the hardware would refuse from add to bad.
func (s *server) check(t *transaction) {
	add, ids := t.add, t.ids
	t.add, t.ids = nil, nil
	for i, err := range s.d.Check(t.remove, add)[len(t.remove):] {
		if err != nil {
			t.bad[ids[i]] = s.invalidPair(add[i], err)
			continue
		}
		t.add, t.ids = append(t.add, add[i]), append(t.ids, ids[i])
	}
}

func (s *server) invalidPair(p pair, err error) invalid {
	return invalid{s.d.Label(p.From, device.Ingress), s.d.Label(p.To, device.Egress), err.Error()}
}

// commit executes a transaction. The caller holds the lock.
func (s *server) commit(ctx context.Context, t transaction) error {
	results := s.d.Apply(ctx, t.remove, t.add, device.Bulk)
	for _, err := range results {
		if errors.Is(err, device.ErrDown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return status.Error(codes.Unavailable, err.Error())
		}
	}
	close(s.edited)
	s.edited = make(chan struct{})
	s.invalid = t.keep
	maps.Copy(s.invalid, t.bad)
	now := s.d.Map()
	for i, p := range t.add {
		switch err := results[len(t.remove)+i]; {
		case err != nil:
			s.invalid[t.ids[i]] = s.invalidPair(p, err)
		case now[p.From] != p.To:
			s.invalid[t.ids[i]] = s.invalidPair(p, errors.New("not in the hardware's table"))
		default:
			s.names[p] = t.ids[i]
		}
	}
	return nil
}
