package nic

import (
	"slices"
	"strings"
	"testing"

	"lightpath/plans"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/dispatch"
	"lightpath/shim/endpoints"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/stream"
)

// TestGPUDirectEligible checks that eligibility depends only on values that all ranks share.
func TestGPUDirectEligible(t *testing.T) {
	good := func() []bootstrap.Hello {
		return []bootstrap.Hello{{Rank: 0, Identity: "a", Host: "h"}, {Rank: 1, Identity: "b", Host: "i", Process: 1}}
	}
	rdma := settings.Config{Transport: settings.TransportRDMA}
	if why := whyNot(good(), &rdma, false); why != "" {
		t.Errorf("refused: %s", why)
	}
	ib, err := settings.Of("NCCL_NET", "IB")
	if err != nil {
		t.Fatal(err)
	}
	if why := whyNot(good(), ib, false); why != "" {
		t.Errorf("NCCL_NET=IB between hosts: %s", why)
	}
	uc := settings.Config{Transport: settings.TransportNet, IB: settings.IB{Mode: settings.RDMAUC}}
	if why := whyNot(good(), &uc, false); why != "" {
		t.Errorf("LIGHTPATH_RDMA_MODE=uc, which a plugin ignores: %s", why)
	}
	for want, change := range map[string]func(table []bootstrap.Hello, cfg *settings.Config) []bootstrap.Hello{
		"LIGHTPATH_TRANSPORT=tcp": func(t []bootstrap.Hello, cfg *settings.Config) []bootstrap.Hello {
			cfg.Transport = "tcp"
			return t
		},
		"LIGHTPATH_RDMA_MODE=uc": func(t []bootstrap.Hello, cfg *settings.Config) []bootstrap.Hello {
			cfg.IB.Mode = settings.RDMAUC
			return t
		},
		"LIGHTPATH_FALLBACK=interpose": func(t []bootstrap.Hello, cfg *settings.Config) []bootstrap.Hello {
			cfg.Other.Interpose = true
			return t
		},
		"one rank": func(t []bootstrap.Hello, _ *settings.Config) []bootstrap.Hello { return t[:1] },
		"rank 1 (, process 0): NCCL_NET_GDR_READ=0": func(t []bootstrap.Hello, _ *settings.Config) []bootstrap.Hello {
			t[1].NoRemote = "NCCL_NET_GDR_READ=0"
			return t
		},
		"rank 1 (, process 0): no device": func(t []bootstrap.Hello, _ *settings.Config) []bootstrap.Hello {
			t[1].Identity, t[1].NoDevice = "", "no device"
			return t
		},
	} {
		cfg := rdma
		if why := whyNot(change(good(), &cfg), &cfg, false); !strings.Contains(why, want) {
			t.Errorf("%q does not say %q", why, want)
		}
	}
}

// TestGPUDirectCircuitsEligible checks which planes are eligible, by values that all ranks share.
func TestGPUDirectCircuitsEligible(t *testing.T) {
	for _, c := range []struct {
		cfg  settings.Config
		kind plans.CircuitKind
		rdma bool
		says string
	}{
		{onPath(settings.DevicePathRDMA), plans.Duplex, true, ""},
		{onPath(settings.DevicePathAuto), plans.Duplex, true, "taken out of service"},
		{onPath(settings.DevicePathRDMA), plans.Simplex, true, "simplex"},
		{onPath(settings.DevicePathRDMA), plans.Duplex, false, "do not end at RDMA ports"},
	} {
		if why := whyNotOverCircuits(&c.cfg, c.kind, c.rdma); (why == "") != (c.says == "") ||
			!strings.Contains(why, c.says) {
			t.Errorf("%+v, %v: %q", c.cfg, c.kind, why)
		}
	}
}

// TestEndsNeed checks which access to a device's memory the ends of lanes need.
func TestEndsNeed(t *testing.T) {
	for _, a := range []device.RemoteAccess{{Ordered: true}, {DMABufs: true}} {
		if _, _, err := (&ports{}).listen(&Path{access: access{RemoteAccess: a}}); err == nil {
			t.Errorf("%+v suffices for RDMA ports", a)
		}
	}
	p := plugin{&endpoints.PluginPorts{DMABufs: true, Addresses: true}}
	if ways := p.ways(device.RemoteAccess{DMABufs: true}); !slices.Equal(ways, []bool{false, true}) {
		t.Errorf("by address: %v", ways)
	}
	if ways := p.ways(device.RemoteAccess{}); !slices.Equal(ways, []bool{true}) {
		t.Errorf("without dma-bufs, by address: %v", ways)
	}
	if p.Addresses = false; len(p.ways(device.RemoteAccess{})) > 0 {
		t.Error("there is no way, and it finds one")
	}
}

// TestGPUDirectReplayAllocatesNothing checks that recording a replay on a driver's thread allocates nothing.
func TestGPUDirectReplayAllocatesNothing(t *testing.T) {
	c := &comm.Core{}
	recorder.New(c, recorder.Least)
	r := &replay{x: &Path{c: c}, Called: recorder.Called{Entry: &dispatch.Entry{}}}
	begin, end := stream.AddPlace(replayBegins{r}), stream.AddPlace(replayEnds{r})
	defer stream.DropPlace(begin)
	defer stream.DropPlace(end)
	if n := testing.AllocsPerRun(100, func() {
		stream.Places().Ready(uintptr(begin))
		stream.Places().Ready(uintptr(end))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := recorder.Of(c).Snapshot().Counts[calls.AllReduce]; n != 101 {
		t.Errorf("%d replays", n)
	}
}

func onPath(path string) settings.Config { return settings.Config{Device: settings.Device{Path: path}} }
