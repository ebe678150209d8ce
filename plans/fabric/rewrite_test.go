package fabric

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
)

func TestRewrite(t *testing.T) {
	const head = "# mine\nversion: 1\nranks: 2\nplanes:\n  - {name: p0, bandwidth: 2Gbps, ocs: o} # one\n" +
		"  - ocs: o\n    bandwidth: \"2Gbps\"   # another\n    name: p1\n" +
		"ocs: [{name: \u00e4, driver: emulator, reconfig: 1ms}, {name: o, driver: emulator, reconfig: '2ms'}]\n"
	const changed = "# mine\nversion: 1\nranks: 2\nplanes:\n  - {name: p0, bandwidth: 1.98Gbps, ocs: o} # one\n" +
		"  - ocs: o\n    bandwidth: \"1.98Gbps\"   # another\n    name: p1\n" +
		"ocs: [{name: \u00e4, driver: emulator, reconfig: 1500us}, {name: o, driver: emulator, reconfig: '2500us'}]\n"
	change := func(f *Fabric) {
		f.Costs = Costs{Alpha: 300 * time.Microsecond, Hop: 20 * time.Microsecond, Barrier: 150 * time.Microsecond}
		for j := range f.Planes {
			f.Planes[j].Bandwidth = 1.98e9
		}
		for i := range f.OCS {
			f.OCS[i].Reconfig += 500 * time.Microsecond
		}
	}
	for _, c := range []struct{ name, costs, want string }{
		{"none", "", "costs: {alpha: 300us, hop: 20us, barrier: 150us}\n"},
		{"no end of line", "forwarding: true", "forwarding: true\ncosts: {alpha: 300us, hop: 20us, barrier: 150us}\n"},
		{"all", "costs: {alpha: 1us, barrier: 3us, hop: 2us} # these\n",
			"costs: {alpha: 300us, barrier: 150us, hop: 20us} # these\n"},
		{"some", "costs: { hop: 2us }\n", "costs: { alpha: 300us, barrier: 150us, hop: 20us }\n"},
		{"empty", "costs: {}\n", "costs: {alpha: 300us, hop: 20us, barrier: 150us}\n"},
		{"block", "costs:\n  # in a block\n  hop: 2us\n  barrier: 1us\nforwarding: true\n",
			"costs:\n  # in a block\n  alpha: 300us\n  hop: 20us\n  barrier: 150us\nforwarding: true\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Decode([]byte(head + c.costs))
			require.NoError(t, err)
			change(f)
			got, err := Rewrite([]byte(head+c.costs), f)
			if err != nil || string(got) != changed+c.want {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
	f, err := Decode([]byte(head))
	require.NoError(t, err)
	if got, err := Rewrite([]byte(head), f); err != nil || string(got) != head {
		t.Errorf("nothing to change: %v\n%s", err, got)
	}
	f.Forwarding = true
	if _, err := Rewrite([]byte(head), f); !errors.Is(err, ErrFabric) || !strings.Contains(err.Error(), "in place") {
		t.Errorf("another fabric: %v", err)
	}
}

// FuzzRewrite: whatever the file looks like, it reads afterwards as the fabric that was asked for.
func FuzzRewrite(f *testing.F) {
	files, err := filepath.Glob("testdata/[^o]*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data, uint32(123456), uint32(789))
	}
	f.Add([]byte("{version: 1, ranks: 1, planes: [{name: a, bandwidth: 1Gbps}], costs: {hop: 1us}}"), uint32(5), uint32(7))
	f.Fuzz(func(t *testing.T, data []byte, a, b uint32) {
		want, err := Decode(data)
		if err != nil {
			return
		}
		want.Costs = Costs{Alpha: time.Duration(a), Hop: time.Duration(b), Barrier: time.Duration(a ^ b)}
		for j := range want.Planes {
			want.Planes[j].Bandwidth = Rate(a) + 1
		}
		got, err := Rewrite(data, want)
		if err != nil {
			if !errors.Is(err, ErrFabric) {
				t.Error(err)
			}
			return
		}
		back, err := Decode(got)
		if err != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("%v\n%s", err, got)
		}
		if lines := bytes.Count(got, []byte("\n")) - bytes.Count(data, []byte("\n")); lines < 0 || lines > 4 {
			t.Errorf("%d lines more", lines)
		}
	})
}
