package rpc_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/plans/circuit"
)

// past is a history that remembers what it was asked.
type past struct {
	events []controller.Event
	err    error
	asked  controller.Query
}

func (p *past) History(_ context.Context, q controller.Query) ([]controller.Event, error) {
	p.asked = q
	var all []controller.Event
	for i := range p.events {
		if q.Match(&p.events[i]) && (q.Limit == 0 || len(all) < q.Limit) {
			all = append(all, p.events[i])
		}
	}
	return all, p.err
}

func operate(t *testing.T, o rpc.Options, endpoints ...string) *rpc.Operator {
	t.Helper()
	op, err := rpc.DialOperator(endpoints, o)
	must(t, err)
	t.Cleanup(func() { _ = op.Close() })
	return op
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestOperator(t *testing.T) {
	core := fake.New("a", 7, 4, 2)
	standby := serve(t, nil, options("b", 4, 2))
	s := serve(t, core, options("a", 4, 2))
	standby.standby.Store("a at " + s.address + " is")
	rank := dial(t, 2, rpc.Options{}, s.address)
	if _, err := rank.Acquire(ocsctl.Lease{Mask: 2, Holder: 99}); err != nil {
		t.Fatal(err)
	}
	op, ctx := operate(t, rpc.Options{}, standby.address, s.address), within(t)

	must(t, op.Set(ctx, 0, circuit.Shift(4, 1), "alice"))
	reach(t, rank, 0, 1)
	wants(t, op.Set(ctx, 1, circuit.Shift(4, 1), "alice"), controller.ErrHeld, "set", "plane 1", "port 2")
	wants(t, op.Set(ctx, 2, circuit.Shift(4, 1), "alice"), rpc.ErrProtocol, "plane 2 of 2")
	wants(t, op.Set(ctx, 0, circuit.Shift(3, 1), "alice"), rpc.ErrProtocol, "map of 3 ports, want 4")
	wants(t, op.Set(ctx, 0, circuit.Permutation{0, 0, 1, 2}, "alice"), rpc.ErrProtocol, "[1]")
	wants(t, op.Enable(ctx, -1, "alice"), nil, "plane -1")
	must(t, op.Disable(ctx, 0, "drift", "alice"))
	wants(t, op.Enable(ctx, 0, "alice"), ocsctl.ErrUnknownMap, "enable", "not as desired")

	got, err := op.Status(ctx)
	must(t, err)
	want, err := core.Snapshot()
	must(t, err)
	if got.Token != 7 || got.Planes[0].Reason != "drift" || got.Planes[1].Holders[0].Holder != 99 ||
		!got.Ports[2].Attached {
		t.Errorf("status %+v", got)
	}
	got.Time = want.Time
	if !same(got, want) {
		t.Errorf("status %+v, want %+v", got, want)
	}

	dead := operate(t, rpc.Options{}, standby.address, "127.0.0.1:1")
	_, err = dead.Status(ctx)
	wants(t, err, controller.ErrNotLeader, standby.address,
		"controller b is not the controller in charge: a at "+s.address+" is", "127.0.0.1:1: ", "refused")
	wants(t, dead.Disable(ctx, 0, "", ""), controller.ErrNotLeader)
}

// same compares what reflect would, but for how times are kept.
func same(a, b any) bool {
	return reflect.DeepEqual(normal(reflect.ValueOf(a)), normal(reflect.ValueOf(b)))
}

func normal(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return normal(v.Elem())
	case reflect.Slice:
		var all []any
		for i := range v.Len() {
			all = append(all, normal(v.Index(i)))
		}
		return all
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			return [2]any{at.IsZero(), at.UnixNano()}
		}
		var all []any
		for i := range v.NumField() {
			all = append(all, normal(v.Field(i)))
		}
		return all
	}
	return v.Interface()
}

func TestHistory(t *testing.T) {
	now := time.Now()
	p := &past{}
	for i := range 20 {
		p.events = append(p.events, controller.Event{
			Seq: uint64(100 - i), Time: now.Add(-time.Duration(i) * time.Minute),
			Kind:  []controller.EventKind{controller.Switched, controller.Failed}[i%2],
			Plane: i % 3, Epoch: 5, From: circuit.Shift(4, i), To: circuit.Shift(4, i+1), Took: 25 * time.Millisecond,
			Waited:   time.Second,
			Verified: "light", Port: -1, Holder: 1 << 63, Mask: 3, Who: "alice", Token: 9, Err: "stuck mirror",
		})
	}
	o := options("b", 4, 3)
	o.History = p
	s := serve(t, nil, o) // a standby has the history, too
	op, ctx := operate(t, rpc.Options{}, s.address), within(t)
	for _, q := range []controller.Query{
		controller.AllEvents(),
		{Plane: 0},
		{Plane: controller.AnyPlane, Limit: 3},
		{Plane: 2, Since: now.Add(-9 * time.Minute), Kinds: []controller.EventKind{controller.Failed}},
		{Plane: controller.AnyPlane, Before: 90, Limit: 4},
	} {
		got, err := op.History(ctx, q)
		must(t, err)
		want, _ := p.History(ctx, q)
		if !same(got, want) || len(got) == 0 {
			t.Errorf("%+v: %+v, want %+v", q, got, want)
		}
	}
	_, err := op.History(ctx, controller.Query{Plane: 3})
	wants(t, err, rpc.ErrProtocol, "plane 3 of 3")
	_, err = op.History(ctx, controller.Query{Limit: -1})
	wants(t, err, nil, "limit -1")
	p.err = errors.New("the journal is away")
	_, err = op.History(ctx, controller.AllEvents())
	wants(t, err, nil, "the journal is away")
	_, err = operate(t, rpc.Options{}, serve(t, nil, options("c", 4, 3)).address).History(ctx, controller.AllEvents())
	wants(t, err, nil, "keeps none")
}

func TestWatch(t *testing.T) {
	t.Parallel()
	core := fake.New("a", 1, 4, 1)
	s := serve(t, core, options("a", 4, 1))
	op := operate(t, rpc.Options{}, s.address)
	var mu sync.Mutex
	var seen []controller.Event
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- op.Watch(context.Background(), func() { close(ready) }, func(e controller.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e)
		})
	}()
	<-ready
	for i := range 50 {
		must(t, core.Set(0, circuit.Shift(4, i), "alice"))
	}
	until(t, "events", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == 50 })
	if !slices.IsSortedFunc(seen, func(a, b controller.Event) int {
		return int(a.Seq) - int(b.Seq)
	}) || seen[49].Kind != controller.Commanded || seen[49].Epoch != 50 {
		t.Errorf("events %+v", seen[49])
	}
	s.Close()
	wants(t, <-done, ocsctl.ErrControlLost, "watch")
}

// TestNoController: an operator tells an address where no controller listens from a refusal, and may try again.
func TestNoController(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	op := operate(t, rpc.Options{}, l.Addr().String())
	wants(t, op.Set(within(t), 0, circuit.Shift(2, 1), "alice"), ocsctl.ErrControlLost, "is lightpath ocsd running?")
}

// TestSlowWatcher: a watcher that does not read is cut off, and the controller does not wait.
func TestSlowWatcher(t *testing.T) {
	t.Parallel()
	core := fake.New("a", 1, 4096, 1)
	s := serve(t, core, options("a", 4096, 1))
	op := operate(t, rpc.Options{}, s.address)
	ready, hold, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- op.Watch(context.Background(), func() { close(ready) }, func(controller.Event) { <-hold })
	}()
	<-ready
	for i := range 3000 { // 8 kB each: more than windows, buffers and the queue hold
		must(t, core.Set(0, circuit.Shift(4096, i), "alice"))
	}
	close(hold)
	wants(t, <-done, rpc.ErrSlow, "behind")
}

// TestRoles: a rank's certificate attaches and does not operate.
func TestRoles(t *testing.T) {
	t.Parallel()
	a := lab(t)
	core := fake.New("a", 1, 4, 1)
	o := secure(options("a", 4, 1), a, "controller")
	o.History = &past{}
	s := serve(t, core, o)
	dial(t, 0, as(a, "node7"), s.address)
	ctx := within(t)
	rank, alice := operate(t, as(a, "node7"), s.address), operate(t, as(a, "alice"), s.address)
	_, err := rank.Status(ctx)
	wants(t, err, rpc.ErrForbidden, "Status", "CN=node7")
	_, err = rank.History(ctx, controller.AllEvents())
	wants(t, err, rpc.ErrForbidden, "History")
	wants(t, rank.Set(ctx, 0, circuit.Shift(4, 1), "mallory"), rpc.ErrForbidden)
	wants(t, rank.Watch(ctx, nil, nil), rpc.ErrForbidden)
	var by string
	cancel := core.Watch(func(e controller.Event) { by = e.Who })
	defer cancel()
	must(t, alice.Set(ctx, 0, circuit.Shift(4, 1), "the night\nshift"))
	if want := "the night shift, grpc 127.0.0.1:"; !strings.HasPrefix(by, want) || !strings.HasSuffix(by, " CN=alice") {
		t.Errorf("by %q", by)
	}
}
