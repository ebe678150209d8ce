package web

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// TestPictures writes pictures of the page in many states into the directory that LIGHTPATH_PICTURES names.
func TestPictures(t *testing.T) {
	dir := os.Getenv("LIGHTPATH_PICTURES")
	if dir == "" {
		t.Skip("LIGHTPATH_PICTURES names no directory")
	}
	for _, picture := range []struct {
		name           string
		ports, planes  int
		width          int64
		dark, standby  bool
		change         func(*controller.Snapshot)
		withoutHistory bool
		do             string // in the page, before the picture
	}{
		{name: "healthy", ports: 8, planes: 4, width: 1280},
		{name: "dark", ports: 8, planes: 4, width: 1280, dark: true, change: troubled},
		{name: "troubled", ports: 8, planes: 4, width: 1280, change: troubled},
		{name: "phone", ports: 8, planes: 4, width: 390, change: troubled},
		{name: "large", ports: 64, planes: 8, width: 1440},
		{name: "huge", ports: 300, planes: 8, width: 1440, change: huge},
		{name: "found", ports: 300, planes: 8, width: 1440, change: huge, do: `
			const search = document.getElementById("search");
			search.value = "job:42";
			search.dispatchEvent(new Event("input"));
			setTimeout(() => document.querySelector("#ports tr[data-key='35']").click(), 500)`},
		{name: "hugephone", ports: 300, planes: 8, width: 390, change: huge},
		{name: "bad2", ports: 8, planes: 2, width: 1280, change: bad},
		{name: "bad8", ports: 16, planes: 8, width: 1280, change: bad},
		{name: "bad8dark", ports: 16, planes: 8, width: 1280, dark: true, change: bad},
		{name: "badphone", ports: 8, planes: 2, width: 390, change: bad},
		{name: "standby", ports: 8, planes: 4, width: 1280, standby: true},
		{name: "empty", ports: 8, planes: 2, width: 1280, withoutHistory: true, change: func(s *controller.Snapshot) {
			for i := range s.Ports {
				s.Ports[i] = controller.PortSnapshot{Port: i}
			}
			for j := range s.Planes {
				s.Planes[j].Map = circuit.AllDark(8)
			}
		}},
	} {
		t.Run(picture.name, func(t *testing.T) {
			f := newFake(picture.ports, picture.planes)
			if picture.change != nil {
				f.set(picture.change)
				f.waiting[1] = "epoch 14 waits for ports 3 and 7, since 1.2 s"
			}
			for j := range f.snap.Planes {
				f.ports[j] = readings(picture.ports, f.snap.Planes[j].Dim)
			}
			p := twoPlanes()
			p.Title = "allreduce rabenseifner 8 MiB, weave, 2 planes"
			r := newRig(t, f, Options{
				Plans: func(context.Context) ([]Plan, error) { return []Plan{p}, nil },
				Switches: func(context.Context) (all []SwitchHealth, _ error) {
					for j := range picture.planes {
						all = append(all, SwitchHealth{Name: fmt.Sprintf("sw%d", j), Driver: "polatis-scpi", Model: "Polatis 6000",
							Planes: []string{fmt.Sprintf("p%d", j)}})
					}
					return all, nil
				},
			})
			if !picture.withoutHistory {
				past(f, &p, picture.planes, picture.ports)
			}
			if picture.standby {
				r.charge.set(nil, "ocs2")
			}
			scheme := "light"
			if picture.dark {
				scheme = "dark"
			}
			ctx := browse(t, r, picture.width, 900, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
				_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
				})
				return err
			}))
			do(t, ctx, chromedp.Evaluate[chromedp.Void](picture.do), chromedp.Sleep(2500*time.Millisecond))
			png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			require.NoError(t, err)
			if picture.name == "huge" {
				cost(t, ctx, f, picture.ports)
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, picture.name+".png"), png, 0o644))
		})
	}
}

// huge is a fabric with fading ports, and a job.
func huge(s *controller.Snapshot) {
	s.Planes[0].Dim = []int{35, 120}
	s.Planes[3].State, s.Planes[3].Cause, s.Planes[3].Unlit = controller.Down, controller.CauseNotAsWanted, []int{4}
	s.Planes[3].Reason = "plane p3: light is lost: port 8/308 of rank 8 receives -60.00 dBm from rank 4, want -30.00"
	for r := range 20 {
		s.Ports[200+r] = controller.PortSnapshot{Port: 200 + r}
	}
	job := controller.Job{ID: "42", Name: "train", Mask: 0xff, Since: time.Now()}
	for r := range 24 {
		job.Ports = append(job.Ports, 16+r)
	}
	s.Jobs = []controller.JobSnapshot{{Job: job}}
}

// readings returns the ports of a plane as a switch reports them. Those in dim fade.
func readings(ports int, dim []int) (all []controller.PortState) {
	for r := range ports {
		baseline := -1.2 - float64(r%9)/10
		dbm := baseline + float64(r%5-2)/50
		is := slices.Contains(dim, r)
		if is {
			dbm -= 3.4
		}
		all = append(all, controller.PortState{Label: fmt.Sprintf("%d/%d", r, ports+r), State: "TUNED", DBm: &dbm,
			Baseline: &baseline, Drop: 3, Dim: is})
	}
	return all
}

// cost logs what an update of the page costs: bytes, time to draw, and how many frames of 1/60 s are late.
func cost(t *testing.T, ctx context.Context, f *fake, ports int) {
	t.Helper()
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`{
		window.draws = []; window.late = []; window.bytes = 0;
		const frame = window.requestAnimationFrame.bind(window);
		window.requestAnimationFrame = (draw) => frame((at) => {
			const from = performance.now(); draw(at); document.body.offsetHeight; draws.push(performance.now() - from);
		});
		let last = performance.now();
		frame(function next(at) { late.push(at - last); last = at; frame(next); });
		const stream = new EventSource("api/events");
		for (const kind of ["change", "history"]) stream.addEventListener(kind, (m) => { bytes += m.data.length; });
	}`), chromedp.Sleep(time.Second))
	const updates = 20
	for i := range updates {
		f.set(func(s *controller.Snapshot) {
			p := &s.Planes[i%len(s.Planes)]
			p.Map, p.Epoch = circuit.Shift(ports, 20+i), p.Epoch+1
		})
		f.emit(controller.Event{Kind: controller.Switched, Plane: i % 8, Epoch: uint32(30 + i), Port: -1,
			From: circuit.Shift(ports, 19+i), To: circuit.Shift(ports, 20+i), Took: 25 * time.Millisecond})
		time.Sleep(300 * time.Millisecond)
	}
	t.Log(eval[string](t, ctx, fmt.Sprintf(`{
		draws.sort((x, y) => x - y); late.sort((x, y) => x - y);
		const at = (list, share) => list[Math.floor((list.length - 1) * share)].toFixed(1);
		`+"`${(bytes / %d / 1e3).toFixed(1)} kB per update; a draw takes ${at(draws, .5)} ms, at most ${at(draws, 1)} ms; "+
		"between frames ${at(late, .5)} ms, at most ${at(late, 1)} ms`"+`
	}`, updates)))
}

// troubled is a fabric of which every plane is in another state.
func troubled(s *controller.Snapshot) {
	a := []controller.LeaseSnapshot{{Port: 0, Holder: 0x9f3ac2d1, Mask: 0b0110, Since: time.Now().Add(-3 * time.Second)}}
	s.Planes[1].State, s.Planes[1].Target, s.Planes[1].Posted, s.Planes[1].Missing, s.Planes[1].Holders =
		controller.Waiting, circuit.Xor(8, 3), []int{0, 1, 2, 4, 5, 6}, []int{3, 7}, a
	s.Planes[2].State, s.Planes[2].Target, s.Planes[2].Posted, s.Planes[2].Holders =
		controller.Moving, circuit.Shift(8, 1), []int{0, 1, 2, 3, 4, 5, 6, 7}, a
	s.Planes[3].State, s.Planes[3].Reason, s.Planes[3].Failures =
		controller.Down, "plane p3 epoch 15: switch ocs3: drift: port 5 reaches 2, desired 1 (the switch's map is not "+
			"the one that the change starts from)", 2
	s.Planes[3].Cause = controller.CauseDrift
	s.Queue = []controller.LeaseSnapshot{{Port: 4, Holder: 0x51e07b77, Mask: 0b0011,
		Since: time.Now().Add(-800 * time.Millisecond)}, {Port: 6, Holder: 0x6b21, Mask: 0b0010, Since: time.Now()}}
	s.Ports[7].Attached, s.Ports[7].Who = false, ""
}

// bad is a fabric with lost light on the first plane and a drifted last plane, with a long cause.
func bad(s *controller.Snapshot) {
	s.Planes[0].Unlit, s.Planes[0].Cause = []int{4}, controller.CauseNotAsWanted
	s.Planes[0].State, s.Planes[0].Reason = controller.Down,
		"plane p0 epoch 12: reconfiguration failed: light is lost: port 13 of rank 5 receives -60.00 dBm from rank 4, "+
			"want -30.00"
	p := &s.Planes[len(s.Planes)-1]
	p.State, p.Cause, p.Desired, p.Map = controller.Down, controller.CauseDrift, p.Map, p.Map.Clone()
	p.Map[2], p.Map[6] = circuit.Dark, p.Map[2]
	p.Reason = "plane p1 epoch 13: drift of 2 circuits: port 2 is dark, desired " + fmt.Sprint(p.Desired[2]) +
		": " + strings.Repeat("the switch's map is not the one that the change starts from; ", 9) +
		"this is the end of the cause"
}

// past gives the fake some minutes of history, and a run of p at the end of it.
func past(f *fake, p *Plan, planes, ports int) {
	at := time.Now().Add(-6 * time.Minute)
	f.emit(controller.Event{Kind: controller.TookOver, Time: at.Add(2 * time.Minute), Plane: -1, Port: -1,
		Who: "ocs1", Token: 41})
	for i := range 90 {
		at = at.Add(time.Duration(1500+(i*i*37)%4200) * time.Millisecond)
		j := i * 7 % planes
		switch i {
		case 60:
			f.emit(controller.Event{Kind: controller.Failed, Time: at, Plane: planes - 1, Epoch: uint32(i), Port: -1,
				Err: "plane p3: circuits are not as intended: port 5: no light"})
		case 68:
			f.emit(controller.Event{Kind: controller.Commanded, Time: at, Plane: planes - 1, Epoch: uint32(i), Port: -1,
				Who: "CN=alice: enable"})
			f.emit(controller.Event{Kind: controller.Restored, Time: at, Plane: planes - 1, Epoch: uint32(i), Port: -1})
		default:
			f.emit(controller.Event{
				Kind: controller.Switched, Time: at, Plane: j, Epoch: uint32(i), Port: -1, From: circuit.Xor(ports, 1+i%3),
				To:   circuit.Xor(ports, 1+(i+1)%3),
				Took: time.Duration(24+i%3) * time.Millisecond, Waited: time.Duration(i*i*29%1800) * time.Millisecond,
				Verified: "light",
			})
		}
	}
	f.emit(controller.Event{Kind: controller.Granted, Plane: -1, Port: 0, Holder: 0x9f3ac2d1, Mask: 3})
	n := 0
	for _, e := range carryOut(p, []int{0, 1}, time.Now(), func() time.Duration {
		n++
		return time.Duration((n-1)*40) * time.Microsecond
	}) {
		f.emit(e)
	}
}
