package planning

import (
	"context"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/packets"
	"lightpath/plans/planner"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/settings"
)

// siteAt returns the site of ranks at ports of a fabric of 8 ports and 2 planes.
func siteAt(ports ...int) *Site {
	fab := &fabric.Fabric{
		Version: fabric.Version, Name: "test", Ranks: 8, Circuits: plans.Simplex,
		OCS: []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:/ocs",
			Reconfig: 200 * time.Microsecond}},
		Costs: fabric.Costs{Alpha: 20 * time.Microsecond, Barrier: 100 * time.Microsecond},
	}
	for _, name := range []string{"p0", "p1"} {
		fab.Planes = append(fab.Planes, fabric.Plane{Name: name, Bandwidth: 2e9, OCS: "ocs0"})
	}
	s := NewSite(&settings.Config{Plan: settings.Plan{
		Planner: planner.Auto, Limit: 10 * time.Second, Tolerance: 0.01, Wait: true,
	}}, fab, ports)
	s.Choices = dispatch.PacketChoices("tcp")
	return &s
}

func float32s(kind calls.Kind, count uint64) calls.Shape {
	return calls.Shape{Kind: kind, Type: datatype.Float32, Count: count}
}

// open returns the book of a communicator, which ends with the test.
func open(t *testing.T, s *Site) *Book {
	t.Helper()
	b, err := OpenBook(s, new(Known), nil)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// row returns a book's row of a shape on all planes.
func row(t *testing.T, b *Book, s calls.Shape) Row {
	t.Helper()
	r, err := b.Row(s, b.site.All(), nil)
	require.NoError(t, err)
	return r
}

// TestPlansAreShared checks that communicators of one size use each other's plans, at the same ports and at others, and
// that the last one takes the plans along.
func TestPlansAreShared(t *testing.T) {
	s := float32s(calls.AllToAll, 1000)
	t.Run("process", func(t *testing.T) {
		first := row(t, open(t, siteAt(0, 1, 2, 3)), s).Best
		for _, site := range []*Site{siteAt(0, 1, 2, 3), siteAt(7, 5, 6, 4)} {
			b := open(t, site)
			if again := row(t, b, s).Best; again == nil || again.ID != first.ID || b.Plannings() != 0 {
				t.Errorf("ports %v: %d plans made", site.Places.Ports(), b.Plannings())
			}
		}
		for name, k := range map[string]struct {
			site  *Site
			shape calls.Shape
		}{
			"other ranks": {siteAt(0, 1), s}, "other kind": {siteAt(0, 1, 2, 3), float32s(calls.AllGather, 1000)},
		} {
			if b := open(t, k.site); row(t, b, k.shape).Best == nil || b.Plannings() != 1 {
				t.Errorf("%s: %d plans made", name, b.Plannings())
			}
		}
	})
	if b := open(t, siteAt(0, 1, 2, 3)); row(t, b, s).Best == nil || b.Plannings() != 1 {
		t.Errorf("after the last communicator: %d plans made", b.Plannings())
	}
}

// TestLearn checks that a plan from another process's leader serves communicators of this process.
func TestLearn(t *testing.T) {
	s := float32s(calls.AllToAll, 1000)
	var told *Agreed
	t.Run("leader", func(t *testing.T) { told = row(t, open(t, siteAt(0, 1, 2, 3)), s).Best })
	named := s
	named.Request.Plan.Digits = 4
	for name, k := range map[string]struct {
		shape   calls.Shape
		planner string // of this process's settings
		made    int
	}{
		"auto": {s, planner.Auto, 0}, "same planner": {s, told.Plan.Planner, 0}, "other planner": {s, "harvest", 1},
		"named by the call": {named, planner.Auto, 1},
	} {
		t.Run(name, func(t *testing.T) {
			Retain()
			t.Cleanup(Release)
			site := siteAt(0, 1, 2, 3)
			site.Cfg.Plan.Planner = k.planner
			f, err := site.Family(k.shape, 2, nil)
			require.NoError(t, err)
			job, err := f.Job(Key{Shape: k.shape})
			require.NoError(t, err)
			job.Learn(site.Cfg, told.Plan)
			other := siteAt(4, 5, 6, 7)
			other.Cfg.Plan.Planner = k.planner
			b := open(t, other)
			if got := row(t, b, s).Best; got == nil || k.made == 0 && got.ID != told.ID || b.Plannings() != k.made {
				t.Errorf("%d plans made, want %d", b.Plannings(), k.made)
			}
		})
	}
}

// TestSmallCallsStopEarly checks that a plan at its bound, or near it, is returned without the limit of a search.
func TestSmallCallsStopEarly(t *testing.T) {
	site := siteAt(0, 1, 2, 3)
	for _, kind := range []calls.Kind{calls.AllReduce, calls.AllGather, calls.Broadcast, calls.AllToAll} {
		for _, forwarding := range []bool{false, true} {
			site.Template.Forwarding = forwarding
			job, err := site.Job(float32s(kind, 1), 2, nil)
			require.NoError(t, err)
			began := time.Now()
			plan, err := search(context.Background(), planner.Auto, job.Problem, time.Hour)
			require.NoError(t, err)
			t.Logf("%v, forwarding %v: %v us, bound %v, in %v", kind, forwarding, plan.CCTUS, plan.LowerBoundUS,
				time.Since(began))
		}
	}
}

// TestOnPackets covers which calls use packet planes: the choice depends on the call, the fabric and rank 0's settings.
func TestOnPackets(t *testing.T) {
	stated := func(s *Site, _ *calls.Shape) {
		s.Packets.AlphaUS, s.Packets.Gbps, s.Packets.Stated = 20, 4, true // the rate of both planes
	}
	for name, k := range map[string]struct {
		shape     calls.Shape
		transport string // of the packet planes
		edit      func(*Site, *calls.Shape)
		want      bool
	}{
		"one element": {float32s(calls.AllGather, 1), "shm", nil, true},
		"over TCP":    {float32s(calls.AllGather, 1), "tcp", nil, true},
		"large":       {float32s(calls.AllReduce, 1<<20), "shm", nil, false},
		"named planner": {float32s(calls.AllGather, 1), "shm", func(s *Site, _ *calls.Shape) {
			s.Cfg.Plan.Planner = "swot"
		}, false},
		"named planes": {float32s(calls.AllGather, 1), "shm", func(_ *Site, c *calls.Shape) {
			c.Request.Planes = 1
		}, false},
		"no packet planes": {float32s(calls.AllGather, 1), "", func(s *Site, _ *calls.Shape) { s.Packets = nil }, false},
		"no costs stated": {float32s(calls.AllGather, 1), "shm", func(s *Site, _ *calls.Shape) {
			s.Template.AlphaUS, s.Packets.AgreeUS = 0, 0
		}, false},
		"slow packet planes": {float32s(calls.AllGather, 1), "tcp", func(s *Site, _ *calls.Shape) {
			s.Packets.AlphaUS = 200 // one round
		}, false},
		"stated: three settings on two planes": {float32s(calls.AllToAll, 1<<16), "tcp", stated, true},
		"stated: slower": {float32s(calls.AllToAll, 1<<16), "tcp", func(s *Site, c *calls.Shape) {
			stated(s, c)
			s.Packets.Gbps = 2
		}, false},
		"stated, named planner": {float32s(calls.AllToAll, 1<<16), "tcp", func(s *Site, c *calls.Shape) {
			stated(s, c)
			s.Cfg.Plan.Planner = "swot"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			site := siteAt(0, 1, 2, 3)
			costs := dispatch.PacketCosts(k.transport, &fabric.Fabric{Costs: fabric.Costs{Barrier: 100 * time.Microsecond}})
			site.Packets = &costs
			if k.edit != nil {
				k.edit(site, &k.shape)
			}
			job, err := site.Job(k.shape, 1, nil) // however many planes are in service
			require.NoError(t, err)
			if got := site.OnPackets(k.shape, job.Problem); got != k.want {
				t.Errorf("on packet planes: %v", got)
			}
		})
	}
}

// TestWorthwhile: a matrix uses circuits if these are faster than the stated packet planes, else if it is large.
func TestWorthwhile(t *testing.T) {
	site := siteAt(0, 1, 2, 3)
	d := NewDemand([]Pair{{0, 1, 200e3}, {1, 2, 200e3}, {2, 3, 200e3}, {3, 0, 200e3}}, 4) // 0.4 ms on both planes
	small := NewDemand([]Pair{{0, 1, 1000}}, 4)
	if !site.Worthwhile(d) || site.Worthwhile(small) {
		t.Error("no packet planes stated")
	}
	for gbps, want := range map[float64]bool{4: false, 1: true} {
		site.Packets = &packets.Costs{AlphaUS: 20, Gbps: gbps, Stated: true}
		if got := site.Worthwhile(d); got != want || site.Worthwhile(small) || site.Rounds() != want {
			t.Errorf("packet planes of %v Gb/s: %v, rounds %v", gbps, got, site.Rounds())
		}
	}
}
