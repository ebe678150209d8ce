package shim_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/shim"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

// TestVersionSkew: ranks of different versions refuse each other by name, also where one says
// things that the other has never heard of.
func TestVersionSkew(t *testing.T) {
	for name, body := range map[string]string{
		"same fields":    `{"rank":1,"ranks":2,"name":"elsewhere","pid":7,"version":"9.9.9"}`,
		"unknown fields": `{"rank":1,"ranks":2,"name":"elsewhere","pid":7,"version":"9.9.9","colour":"red"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TIMEOUT", "50s")
			id, err := shim.NewUniqueID()
			require.NoError(t, err)
			addr, sec, err := bootstrap.ParseID(&id)
			require.NoError(t, err)
			errs := shimtest.Concurrently(t, 2, func(r int) error {
				if r == 0 {
					_, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 2}})
					return err
				}
				conn, err := control.Dial(t.Context(), addr, sec, time.Now().Add(50*time.Second), true)
				if err != nil {
					return err
				}
				defer conn.Close()
				if _, err := conn.Write(control.Append(nil, &control.Message{Kind: control.MsgHello, From: 1,
					Body: []byte(body)})); err != nil {
					return err
				}
				var m control.Message
				if err := control.Read(conn, &m); err != nil {
					return err
				}
				if m.Kind != control.MsgRefuse {
					return fmt.Errorf("an answer of kind %d", m.Kind)
				}
				return fmt.Errorf("%s: %w", m.Body, errdefs.ErrInvalidUsage)
			})
			shimtest.WantErrors(t, errs, errdefs.ErrInvalidUsage, "rank 1 (elsewhere, process 7) runs", "9.9.9", shim.Version)
		})
	}
}

// TestPlansOfAnotherPlanner: a plan that another version of the planners has made is not used.
func TestPlansOfAnotherPlanner(t *testing.T) {
	cfg, fab, store := shimtest.SetUpWarm(t)
	call := planning.Asked{Collective: calls.Kinds[calls.AllReduce].Collective, Count: 1000}
	made := shimtest.WarmPlan(t, cfg, fab, 4, store, call)
	old := made.Entry.Key
	old.PlannerVersion = planner.Version - 1
	if _, err := store.Put(old, made.Entry.Span); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, store.Remove(made.Entry.Name()))
	other, err := cache.Open(store.Dir())
	require.NoError(t, err)
	if again := shimtest.WarmPlan(t, cfg, fab, 4, other, call); again.Cached {
		t.Error("the plan of another planner was used")
	}
	if n := len(shimtest.PlanFiles(t, store.Dir())); n != 2 {
		t.Errorf("%d files in the cache", n)
	}
}

// TestPlanesThatAreNotInterfaces checks that ranks that ask for real circuits get them or an error.
func TestPlanesThatAreNotInterfaces(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "ebpf")
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	refused := func(says string) {
		t.Helper()
		id, err := shim.NewUniqueID()
		require.NoError(t, err)
		_, err = shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}})
		shimtest.WantError(t, err, errdefs.ErrInvalidUsage, "LIGHTPATH_TRANSPORT=ebpf", says)
	}
	refused("LIGHTPATH_FABRIC names no fabric")
	shimtest.UseEmulator(t, 2, 2, nil)
	refused("in the memory of its controller")
}

// TestFabricsThatCannotBeUsed: the error names the plane and what is missing.
func TestFabricsThatCannotBeUsed(t *testing.T) {
	driven := func(f *fabric.Fabric, driver string) {
		f.OCS[0].Driver, f.OCS[0].Endpoint = driver, "10.0.0.1:5025"
		for j := range f.Planes {
			f.Planes[j].Ports = []string{fmt.Sprint(2*j + 1), fmt.Sprint(2*j + 2)}
		}
	}
	for name, c := range map[string]struct {
		edit func(*fabric.Fabric)
		says string // "": it is accepted
	}{
		"as it is": {func(*fabric.Fabric) {}, ""},
		"real, no controller": {func(f *fabric.Fabric) {
			driven(f, fabric.DriverGNMI)
		}, "plane p0: a switch with driver gnmi is moved by a controller"},
		"real, controlled": {func(f *fabric.Fabric) {
			f.Controller.Endpoints = []string{f.OCS[0].Endpoint}
			driven(f, fabric.DriverPolatis)
		}, ""},
		"no controller there": {func(f *fabric.Fabric) {
			f.Controller.Endpoints = []string{"unix:/nonexistent/ocsd.sock"}
		}, "no switch at /nonexistent/ocsd.sock"},
		"controller elsewhere": {func(f *fabric.Fabric) {
			f.Controller.Endpoints = []string{"unix:/nonexistent/ocsd.sock", "127.0.0.1:1"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			shimtest.UseEmulator(t, 2, 2, c.edit)
			_, err := endpoints.LoadFabric(&settings.Config{Fabric: os.Getenv("LIGHTPATH_FABRIC")})
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
