package kernel

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"lightpath/internal/require"
	"lightpath/ocsctl/kernel/kerneltest"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// machine is a host: its name in the fabric file, and the namespace with its interfaces.
type machine struct{ host, underlay string }

func machines(t testing.TB, planes int) []machine {
	t.Helper()
	all := kerneltest.Hosts(t, 2, planes, 1500)
	return []machine{{"a", all[0]}, {"b", all[1]}}
}

// hostsFabric is a fabric of two hosts, two and three ranks.
func hostsFabric(t testing.TB, planes int, rate string, forwarding bool) *fabric.Fabric {
	t.Helper()
	text := fmt.Sprintf("version: 1\nname: t%d\nhosts: [{name: a, ranks: 2}, {name: b, ranks: 3}]\nforwarding: "+
		"%v\nplanes:\n", os.Getpid(), forwarding)
	for j := range planes {
		text += fmt.Sprintf("  - {name: plane%d, bandwidth: %s, ocs: ocs0, interface: e%d}\n", j, rate, j)
	}
	f, err := fabric.Decode([]byte(text + "ocs:\n  - {name: ocs0, driver: emulator, reconfig: 2ms}\n"))
	require.NoError(t, err)
	return f
}

// upOn builds a fabric on some hosts, and opens their boards and all ports.
func upOn(t testing.TB, f *fabric.Fabric, on []machine) (states []*State, boards []*Board, all []host) {
	t.Helper()
	for _, m := range on {
		name := NameOn(f, m.host)
		t.Cleanup(func() {
			if _, err := Down(name, true); err != nil {
				t.Error(err)
			}
			nothing(t, name)
		})
		s, fresh, err := Up(f, Options{MTU: 1500, Host: m.host, Underlay: m.underlay})
		if err != nil || !fresh {
			t.Fatal(fresh, err)
		}
		states, boards = append(states, s), append(boards, openBoard(t, s))
		for r := range s.locals() {
			p, err := Attach(s, r)
			require.NoError(t, err)
			t.Cleanup(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
			all = append(all, host{t, p})
		}
	}
	return states, boards, all
}

func installAll(t testing.TB, boards []*Board, plane int, m circuit.Permutation) {
	t.Helper()
	for _, b := range boards {
		require.NoError(t, b.Install(plane, m))
	}
}

// TestHostInterfaceDown: the report of a host names the plane whose interface is down, and no other plane.
func TestHostInterfaceDown(t *testing.T) {
	on := machines(t, 2)[1:]
	states, _, _ := upOn(t, hostsFabric(t, 2, "2Gbps", false), on)
	err := within(on[0].underlay, func() error {
		l, err := netlink.LinkByName("e1")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(l)
	})
	require.NoError(t, err)
	var r *Report
	wait(t, func() bool {
		r, err = Inspect(states[0])
		return err != nil || len(r.Problems) > 0
	}, "no problem is reported")
	if err != nil || !slices.Equal(r.Down(), []string{"plane1"}) || len(r.Problems) != states[0].Count {
		t.Fatal(err, r.Down(), r.Problems)
	}
	for _, p := range r.Problems {
		if !strings.HasPrefix(p, "plane plane1: rank ") || !strings.Contains(p, "interface e1 is down") {
			t.Error(p)
		}
	}
}

// Circuits lead from host to host as they do within one, direct and forwarded. Frames on a dark or wrong circuit are
// lost and counted.
func TestHosts(t *testing.T) {
	f := hostsFabric(t, 2, "2Gbps", true)
	states, boards, all := upOn(t, f, machines(t, 2))
	for j := range 2 {
		for _, shift := range []int{1, 2, 4} {
			installAll(t, boards, j, circuit.Shift(5, shift))
			for r := range all {
				for hops := range 4 { // 5 is a prime: every shift is one ring
					to := (r + (hops+1)*shift) % 5
					all[r].send(j, all[to], 20, frame)
					all[to].expect(j, r, 20)
				}
			}
		}
	}
	for _, s := range states {
		r, err := Inspect(s)
		if err != nil || len(r.Problems) > 0 || len(r.Planes[0].Ports) != s.Count || r.Planes[0].Ports[0].Rank != s.First {
			t.Errorf("%v %+v", err, r)
		}
	}
	// Dark.
	m := circuit.Shift(5, 1)
	m[1] = circuit.Dark
	installAll(t, boards, 0, m)
	all[1].send(0, all[2], 5, frame)
	all[1].drained(0)
	if dark, _ := all[1].Planes[0].Counters.Dropped(); dark != 5 {
		t.Errorf("%d frames lost in the dark, want 5", dark)
	}
	// The hosts disagree: the one where the circuit ends does not take it.
	require.NoError(t, boards[0].Install(0, circuit.Shift(5, 1)))
	all[1].send(0, all[2], 5, frame)
	wait(t, func() bool {
		_, wrong := all[2].Planes[0].Counters.Dropped()
		return wrong == 5
	}, "frames on half a circuit are not counted")
	for r := range all {
		if got := all[r].receive(0); got != nil {
			t.Errorf("rank %d has got frames from %v", r, got)
		}
	}
}

// Each host's part goes by itself, and comes back.
func TestHostsDown(t *testing.T) {
	f := hostsFabric(t, 1, "2Gbps", false)
	on := machines(t, 1)
	for _, m := range on {
		t.Cleanup(func() {
			if _, err := Down(NameOn(f, m.host), true); err != nil {
				t.Error(err)
			}
		})
		if _, _, err := Up(f, Options{MTU: 1500, Host: m.host, Underlay: m.underlay}); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range on {
		name := NameOn(f, m.host)
		if found, err := Down(name, true); !found || err != nil {
			t.Fatal(found, err)
		}
		nothing(t, name)
		if left := kerneltest.Links(t, m.underlay); !slices.Equal(left, []string{"lo", "e0"}) {
			t.Errorf("host %s has interfaces %v", m.host, left)
		}
		if _, err := Load(NameOn(f, on[1].host)); i == 0 && err != nil {
			t.Errorf("host b went with host a: %v", err)
		}
		if _, fresh, err := Up(f, Options{MTU: 1500, Host: m.host, Underlay: m.underlay}); !fresh || err != nil {
			t.Error(fresh, err)
		}
	}
}

func TestHostsRefuse(t *testing.T) {
	f := hostsFabric(t, 1, "2Gbps", false)
	on := machines(t, 1)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "hosts: 2"},
		{Options{Host: "c"}, `none is "c"`},
		{Options{Host: "a", Underlay: on[0].underlay}, "its MTU is 1500, the fabric's 9000"},
		{Options{Host: "a", Underlay: on[0].underlay + "-not"}, "no such file"},
	} {
		if _, _, err := Up(f, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
		nothing(t, NameOn(f, c.o.Host))
	}
	s, _, err := Up(f, Options{MTU: 1500, Host: "a", Underlay: on[0].underlay})
	require.NoError(t, err)
	defer func() {
		if _, err := Down(s.Name, true); err != nil {
			t.Error(err)
		}
	}()
	if _, err := Attach(s, 2); err == nil || !strings.Contains(err.Error(), "not one of host a") {
		t.Errorf("a rank of another host: %v", err)
	}
}
