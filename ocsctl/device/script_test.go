package device_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/ocsctl/device"
)

func TestScript(t *testing.T) {
	script, err := device.ParseScript([]byte(`
- {after_ms: 20, fault: third-party, in: 0, out: 3}
- {after_ms: 10, fault: slow-pair, in: 1, delay_ms: 1.5}
`))
	want := []device.Timed{
		{After: 10 * time.Millisecond, Fault: device.Fault{Kind: device.SlowPair, In: 1, Out: -1,
			Delay: 1500 * time.Microsecond}},
		{After: 20 * time.Millisecond, Fault: device.Fault{Kind: device.ThirdParty, In: 0, Out: 3}},
	}
	if err != nil || !reflect.DeepEqual(script, want) {
		t.Fatalf("%+v, %v", script, err)
	}
	model(t, device.Config{}, func(t *testing.T, d *device.Device) {
		if err := d.Run(script); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if got := d.Map()[0]; got != 3 {
			t.Errorf("port 0 goes to %d", got)
		}
		if err := d.Run([]device.Timed{{Fault: device.Fault{Kind: device.StuckMirror, In: 4}}}); !errors.Is(err,
			device.ErrPort) {
			t.Errorf("a mirror that the switch does not have: %v", err)
		}
		if err := d.Inject(device.Fault{Kind: "fire"}); !errors.Is(err, device.ErrFault) {
			t.Errorf("%v", err)
		}
	})
}

func FuzzParseScript(f *testing.F) {
	f.Add([]byte("- {after_ms: 20, fault: ghost, in: 0, out: 3, count: 2, silent: true, delay_ms: 1}"))
	f.Add([]byte(`[{"after_ms": 1e308, "fault": "reboot"}]`))
	f.Add([]byte("a: b"))
	f.Add([]byte("! 0"))
	f.Add(bytes.Repeat([]byte("["), 60000))
	f.Add(bytes.Repeat([]byte("- "), 30000))
	f.Add(bytes.Repeat([]byte("? "), 30000))
	f.Fuzz(func(t *testing.T, data []byte) {
		script, err := device.ParseScript(data)
		if err != nil && script != nil {
			t.Error("a script and an error")
		}
		for i, s := range script {
			if s.After < 0 || s.Fault.Delay < 0 || i > 0 && s.After < script[i-1].After {
				t.Errorf("row %d: %+v", i, s)
			}
		}
	})
}
