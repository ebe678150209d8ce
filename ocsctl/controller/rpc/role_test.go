package rpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/ocsctl/controller/rpc/labcerts"
	"lightpath/plans/circuit"
)

// TestRolesOfOperators: what each role may call, and on which planes.
func TestRolesOfOperators(t *testing.T) {
	t.Parallel()
	a, err := labcerts.Create(t.TempDir(), time.Hour)
	must(t, err)
	units := map[string][]string{
		"rank": {rpc.RoleRank}, "viewer": {rpc.RoleViewer}, "operator": {rpc.RoleOperator}, "admin": {rpc.RoleAdmin},
		"nobody": nil, "both": {rpc.RoleAdmin, rpc.RoleViewer}, "east": {rpc.RoleOperator, "plane:p0"},
	}
	must(t, a.Issue(labcerts.Subject{Name: "controller", Hosts: []string{"127.0.0.1"}, Life: time.Hour}))
	for name, all := range units {
		must(t, a.Issue(labcerts.Subject{Name: name, Units: all, Life: time.Hour}))
	}
	o := options("a", 2, 2)
	s := serve(t, fake.New("a", 1, 2, 2), secure(o, a, "controller"))
	calls := map[string]func(context.Context, *rpc.Operator) error{
		"status": func(ctx context.Context, op *rpc.Operator) error { _, err := op.Status(ctx); return err },
		"set p0": func(ctx context.Context, op *rpc.Operator) error { return op.Set(ctx, 0, circuit.Shift(2, 1), "x") },
		"set p1": func(ctx context.Context, op *rpc.Operator) error { return op.Set(ctx, 1, circuit.Shift(2, 1), "x") },
		"set both": func(ctx context.Context, op *rpc.Operator) error {
			return op.Change(ctx, controller.Change{Planes: []controller.PlaneChange{
				{Plane: 0, Target: circuit.Shift(2, 1)}, {Plane: 1, Target: circuit.Shift(2, 1)}}}, "x")
		},
		"disable p1": func(ctx context.Context, op *rpc.Operator) error { return op.Disable(ctx, 1, "y", "x") },
		"job": func(ctx context.Context, op *rpc.Operator) error {
			return op.BeginJob(ctx, controller.Job{ID: "1", Ports: []int{0}, Mask: 1}, nil)
		},
		"remap": func(ctx context.Context, op *rpc.Operator) error { return op.Remap(ctx, 0, 1, "3/4", "x") },
	}
	may := map[string][]string{
		"rank": {}, "viewer": {"status"}, "both": {"status"},
		"operator": {"status", "set p0", "set p1", "set both", "disable p1", "job"},
		"east":     {"status", "set p0"},
		"admin":    {"status", "set p0", "set p1", "set both", "disable p1", "job", "remap"},
		"nobody":   {"status", "set p0", "set p1", "set both", "disable p1", "job", "remap"},
	}
	for who, allowed := range may {
		op, err := rpc.DialOperator([]string{s.address}, as(a, who))
		must(t, err)
		want := map[string]bool{}
		for _, name := range allowed {
			want[name] = true
		}
		for name, call := range calls {
			// A command first asks who is in charge, which a rank may not either.
			if err := call(t.Context(), op); errors.Is(err, rpc.ErrForbidden) == want[name] {
				t.Errorf("%s: %s: %v", who, name, err)
			}
		}
		must(t, op.Close())
	}
	// A viewer is no rank.
	_, err = rpc.Dial(t.Context(), []string{s.address}, 0, as(a, "viewer"))
	if !errors.Is(err, rpc.ErrForbidden) {
		t.Errorf("a viewer attaches: %v", err)
	}
}
