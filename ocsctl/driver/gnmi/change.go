package gnmi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/internal/brief"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/plans/circuit"
)

// protocol implements driver.Protocol for one change.
type protocol struct {
	s     *swtch
	last  *dialect.Store // as Map read it
	watch *watch         // nil until a change was requested
}

func (p *protocol) stop() {
	if p.watch != nil {
		p.watch.stop()
	}
}

// Map implements driver.Protocol.
func (p *protocol) Map(ctx context.Context) (circuit.Permutation, error) {
	store, err := p.s.table(ctx)
	if err != nil {
		return nil, err
	}
	p.last = store
	return p.s.permutation(store.Circuits())
}

// Send implements driver.Protocol. A circuit that is reported but not configured cannot be deleted, so Send first
// configures it.
func (p *protocol) Send(ctx context.Context, token uint64, remove, add []circuit.Pair) ([]error, error) {
	all := p.last.Circuits()
	first, req := request(token), request(token)
	for _, pair := range remove {
		if err := p.remove(pair, all, first, req); err != nil {
			return nil, err
		}
	}
	for _, pair := range add {
		p.clear(pair, all, req)
		if err := p.write(pair, req); err != nil {
			return nil, err
		}
	}
	if err := overwrites(all, req); err != nil {
		return nil, err
	}
	p.watch = p.s.subscribe(ctx)
	if len(req.Delete)+len(req.Update) == 0 {
		return nil, nil
	}
	if len(first.Update) > 0 {
		if err := p.s.set(ctx, first, token); err != nil {
			return nil, err
		}
	}
	if err := p.s.set(ctx, req, token); err != nil {
		if len(first.Update) > 0 {
			err = errors.New(err.Error()) // the switch has accepted a part: read back after any error
		}
		return nil, err
	}
	return p.refusals(ctx, token, len(remove), add), nil
}

// Fence implements driver.Fencer.
func (s *swtch) Fence(ctx context.Context, token uint64) error {
	return s.set(ctx, request(token), token)
}

// request returns an empty request of a master with this token; 0: without arbitration.
func request(token uint64) *gpb.SetRequest {
	r := &gpb.SetRequest{}
	if token != 0 {
		r.Extension = []*gnmi_ext.Extension{{Ext: &gnmi_ext.Extension_MasterArbitration{
			MasterArbitration: &gnmi_ext.MasterArbitration{ElectionId: &gnmi_ext.Uint128{Low: token}},
		}}}
	}
	return r
}

// vars returns the variables of a new circuit.
func (p *protocol) vars(pair circuit.Pair) map[string]string {
	return p.s.words.Vars("", p.s.ports.In[pair.From], p.s.ports.Out[pair.To])
}

func (p *protocol) path(elems []*gpb.PathElem) *gpb.Path {
	return &gpb.Path{Origin: p.s.words.Origin, Elem: elems}
}

// remove deletes every entry of a circuit. If there is none, it makes one in first, unless the circuit is being removed
// already.
func (p *protocol) remove(pair circuit.Pair, all []dialect.Circuit, first, req *gpb.SetRequest) error {
	found := false
	for _, c := range all {
		if c.In != p.s.ports.In[pair.From] || c.Out != p.s.ports.Out[pair.To] {
			continue
		}
		if c.Configured {
			req.Delete = append(req.Delete, p.path(c.Path))
		}
		found = found || c.Configured || c.State == dialect.Leaving
	}
	if found {
		return nil
	}
	req.Delete = append(req.Delete, p.s.words.EntryPath(&p.s.words.Config, p.vars(pair)))
	return p.write(pair, first)
}

// clear deletes entries that were never executed and conflict with a circuit.
func (p *protocol) clear(pair circuit.Pair, all []dialect.Circuit, req *gpb.SetRequest) {
	for _, c := range all {
		if c.Configured && !c.Reported && (c.In == p.s.ports.In[pair.From] || c.Out == p.s.ports.Out[pair.To]) {
			req.Delete = append(req.Delete, p.path(c.Path))
		}
	}
}

// overwrites refuses to write an entry whose name belongs to another writer's circuit.
func overwrites(all []dialect.Circuit, req *gpb.SetRequest) error {
	taken := make(map[string]bool, len(all))
	for _, c := range all {
		if c.Configured {
			taken[dialect.String(c.Path)] = true
		}
	}
	for _, p := range req.Delete {
		delete(taken, dialect.String(p.GetElem()))
	}
	for _, u := range req.Update {
		if name := dialect.String(u.GetPath().GetElem()); taken[name] {
			return fmt.Errorf("gnmi: %w: %s is the entry of another circuit", driver.ErrRefused, brief.Line(name))
		}
	}
	return nil
}

func (p *protocol) write(pair circuit.Pair, req *gpb.SetRequest) error {
	v := p.vars(pair)
	value, err := p.s.words.EntryValue(&p.s.words.Config, v)
	if err != nil {
		return fmt.Errorf("gnmi: %w: %w", driver.ErrRefused, err)
	}
	req.Update = append(req.Update, &gpb.Update{Path: p.s.words.EntryPath(&p.s.words.Config, v), Val: value})
	return nil
}

// set requests a change once.
func (s *swtch) set(ctx context.Context, req *gpb.SetRequest, token uint64) error {
	ctx, cancel := context.WithTimeout(ctx, s.setTime)
	defer cancel()
	_, err := s.client.Set(ctx, req)
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("%s: %v: %s", s.endpoint, status.Code(err), brief.Line(status.Convert(err).Message()))
	switch status.Code(err) {
	case codes.PermissionDenied:
		if token != 0 && arbitrated(status.Convert(err).Message()) {
			return fmt.Errorf("gnmi: %w: token %d: %s", driver.ErrFenced, token, text)
		}
		return fmt.Errorf("gnmi: %w: %s", driver.ErrRefused, text)
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
		codes.Aborted, codes.Unimplemented, codes.Unauthenticated:
		return fmt.Errorf("gnmi: %w: %s", driver.ErrRefused, text)
	default:
		return s.fault(err)
	}
}

// arbitrated reports whether a denied permission is due to master arbitration. Switches have one code for a lower
// election id and for a user without write access. Only the text differs: "election" in the specification, "master" in
// SONiC.
func arbitrated(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc([]string{"election", "arbitration", "master"}, func(w string) bool {
		return strings.Contains(message, w)
	})
}

// refusals finds circuits that were accepted as configuration and are invalid, deletes them, and returns an error for
// each. It returns nil if there are none, or if that is unknown.
func (p *protocol) refusals(ctx context.Context, token uint64, removed int, add []circuit.Pair) []error {
	if _, has := p.s.words.Status.Words[dialect.Invalid]; !has || len(add) == 0 {
		return nil
	}
	store, err := p.s.table(ctx)
	if err != nil {
		return nil
	}
	reasons := make(map[[2]string]dialect.Circuit)
	for _, c := range store.Circuits() {
		if c.Configured && c.State == dialect.Invalid {
			reasons[[2]string{c.In, c.Out}] = c
		}
	}
	refused := make([]error, removed+len(add))
	req := request(token)
	for i, pair := range add {
		if c, bad := reasons[[2]string{p.s.ports.In[pair.From], p.s.ports.Out[pair.To]}]; bad {
			refused[removed+i] = fmt.Errorf("%w: %s: %s", driver.ErrRefused, brief.Line(c.Word), brief.Line(c.Reason))
			req.Delete = append(req.Delete, p.path(c.Path))
		}
	}
	if len(req.Delete) == 0 {
		return nil
	}
	if err := p.s.set(ctx, req, token); err != nil {
		for i, r := range refused {
			if r != nil {
				refused[i] = fmt.Errorf("%w; deleting it: %w", r, err)
			}
		}
	}
	return refused
}

// States implements driver.Protocol. It uses the last Map. While circuits move at a switch with notifications, it waits
// for the notification that they are up, and reads once.
func (p *protocol) States(ctx context.Context, pairs []circuit.Pair) ([]driver.State, error) {
	states := p.s.states(p.last, pairs)
	if decided(states) || p.watch == nil || !p.watch.wait(ctx, pairs) {
		return states, nil
	}
	if _, err := p.Map(ctx); err != nil {
		return nil, err
	}
	return p.s.states(p.last, pairs), nil
}

// states returns the states of circuits from a store.
func (s *swtch) states(store *dialect.Store, pairs []circuit.Pair) []driver.State {
	state := make(map[[2]string]dialect.State)
	for _, c := range store.Circuits() {
		state[[2]string{c.In, c.Out}] = c.State
	}
	all := make([]driver.State, len(pairs))
	for i, pair := range pairs {
		switch state[[2]string{s.ports.In[pair.From], s.ports.Out[pair.To]}] {
		case dialect.Up:
			all[i] = driver.Up
		case dialect.Failed, dialect.Invalid:
			all[i] = driver.Failed
		}
	}
	return all
}

func decided(states []driver.State) bool { return !slices.Contains(states, driver.Pending) }

// Light implements driver.Protocol.
func (p *protocol) Light(ctx context.Context, pairs []circuit.Pair) ([]float64, error) {
	if !p.s.words.Power {
		return nil, nil
	}
	store, err := p.s.get(ctx, &p.s.words.Ports)
	if err != nil {
		return nil, err
	}
	ports := store.Ports()
	dbm := make([]float64, len(pairs))
	for i, pair := range pairs {
		dbm[i] = math.NaN()
		if port, ok := ports[p.s.ports.Out[pair.To]]; ok {
			dbm[i] = port.Output
		}
	}
	return dbm, nil
}
