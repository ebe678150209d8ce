package web

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// browse starts a headless browser and opens the page. An exception of a script, or a violation of the
// page's policy, fails the test.
func browse(t *testing.T, r *rig, width, height int64, before ...chromedp.Action[chromedp.Void]) context.Context {
	t.Helper()
	ctx := browser(t)
	do(t, ctx, chromedp.EmulateViewport(width, height))
	complaints(t, ctx, r)
	do(t, ctx, before...)
	do(t, ctx, chromedp.Navigate(r.url))
	until(t, ctx, `document.getElementById("role").textContent !== "connecting"`)
	return ctx
}

// shared is the browser of all tests, started by the first one that needs it; TestMain ends it. nil: there is none.
var shared = sync.OnceValues(func() (context.Context, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
			chromedp.WSURLReadTimeout(patience))
		allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, _ := chromedp.NewContext(allocator)
		stopBrowser = func() {
			_ = chromedp.Cancel(ctx) // waits until the browser has gone, and its files with it
			stopAllocator()
		}
		return ctx, chromedp.Do(ctx)
	}
	return nil, nil
})

// stopBrowser ends the shared browser.
var stopBrowser = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	stopBrowser()
	os.Exit(code)
}

// browser opens a tab of the shared browser that closes with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	parent, err := shared()
	require.NoError(t, err)
	if parent == nil {
		t.Skip("no chromium on this machine")
	}
	ctx, stop := chromedp.NewContext(parent)
	t.Cleanup(stop)
	return ctx
}

// complaints fails the test, at its end, for everything that the browser's console says, except that a controller was
// gone that the test has ended.
func complaints(t *testing.T, ctx context.Context, r *rig) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var said []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m, err := range chromedp.Console(ctx) {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.IsException() {
				said = append(said, fmt.Sprintf("%s %s", m.Source, m.Text))
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, s := range said {
			if r.ended && strings.Contains(s, "503") {
				continue
			}
			t.Errorf("the page complained: %s", s)
		}
	})
}

func do(t *testing.T, ctx context.Context, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(ctx, actions...))
}

// until waits for an expression to become true.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(patience),
		chromedp.WithPollingInterval(20*time.Millisecond)))
	if err != nil {
		text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
		t.Fatalf("never so: %s: %v; the page says:\n%s", expression, err, text)
	}
}

func eval[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(t, err)
	return v
}

// says is an expression: the text of the first element that a selector finds has some words.
func says(selector, words string) string {
	return fmt.Sprintf("(document.querySelector(%q)?.textContent ?? '').includes(%q)", selector, words)
}

// drawn is an expression: a picture shows so many circuits of a kind. One path has all of them.
func drawn(selector string, n int) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%q)].reduce((n, p) => n + Number(p.dataset.n), 0) === %d`,
		selector, n)
}

func TestPage(t *testing.T) {
	f := newFake(8, 3)
	r := newRig(t, f, Options{})
	ctx := browse(t, r, 1200, 1000)
	until(t, ctx, `document.querySelectorAll(".plane").length === 3`)
	for _, want := range []string{
		says("#role", "in charge"), says("#token", "41"), says("#version", "1.2.3"),
		says("#summary", "All 3 planes in service, 8 of 8 ports attached"),
		says(".plane:nth-child(2) h3", "p1"), says(".plane:nth-child(2) .epoch", "epoch 13"),
		says(".plane:nth-child(2) dd", "shift 2"), says("#ports", "CN=node7"),
		drawn(".plane:first-child .circuit", 8),
		`getComputedStyle(document.querySelector(".plane .circuit")).fill === "none"`, // the style sheet is in force
	} {
		until(t, ctx, want)
	}

	// A barrier that waits: ports that have posted, that have not, and that cannot.
	f.set(func(s *controller.Snapshot) {
		p := &s.Planes[0]
		p.State, p.Target, p.Posted, p.Missing = controller.Waiting, circuit.Shift(8, 3), []int{0, 1, 2, 4, 5, 6}, []int{3, 7}
		p.Holders = []controller.LeaseSnapshot{{Port: 0, Holder: 0xabcdef, Mask: 1, Since: time.Now()}}
		s.Queue = []controller.LeaseSnapshot{{Port: 4, Holder: 0x123456, Mask: 3, Since: time.Now()}}
		s.Ports[7].Attached = false
		s.Jobs = []controller.JobSnapshot{
			{Job: controller.Job{ID: "17", Name: "train", Ports: []int{2, 3, 1}, Mask: 5, Fixed: true}},
			{Job: controller.Job{ID: "18", Ports: []int{5}, Mask: 2}, Waits: 2},
		}
	})
	for _, want := range []string{
		`document.querySelector(".plane").dataset.state === "waiting"`, says(".plane .note", "Posted: 0-2, 4-6"),
		says(".plane .note", "Missing: 3, 7"), says(".plane .note", "Port 7 has no rank"),
		drawn(".plane:first-child .target", 8),
		says(".plane dd:nth-of-type(2)", "abcdef, port 0"),
		says("#jobs tbody tr:nth-child(1)", "17trainp0, p21-3"), says("#jobs tbody tr:nth-child(1)", "set"),
		says("#jobs tbody tr:nth-child(2)", "to be set: p1"),
		says("#uses", "abcdef has p0"), says("#uses", "123456 waits for p0 and p1"), says("#uses", "behind abcdef"),
		`document.querySelectorAll("#graph .edge.waits").length === 2`,
	} {
		until(t, ctx, want)
	}

	// It moves, live: another map, an entry in the history, a bar in the timeline.
	f.set(func(s *controller.Snapshot) {
		p := &s.Planes[0]
		p.State, p.Map, p.Target, p.Posted, p.Missing, p.Epoch = controller.Resident, circuit.Shift(8, 3), nil, nil, nil, 13
	})
	f.emit(controller.Event{Kind: controller.Switched, Plane: 0, Epoch: 13, From: circuit.Shift(8, 1),
		To: circuit.Shift(8, 3), Took: 25 * time.Millisecond, Waited: 3 * time.Millisecond, Verified: "light", Port: -1})
	for _, want := range []string{
		says(".plane .epoch", "epoch 13"), says(".plane dd", "shift 3"), says("#history tr", "shift 1 \u2192 shift 3"),
		says("#history tr", "25.0 ms"),
		says(".plane dl", "in 25.0 ms, waited 3.00 ms"), `document.querySelector("#timeline .took") !== null`,
	} {
		until(t, ctx, want)
	}

	// A plane fails: the reason, and what to do.
	f.set(func(s *controller.Snapshot) {
		s.Planes[2].State, s.Planes[2].Cause = controller.Down, controller.CauseDrift
		s.Planes[2].Reason = "plane p2 epoch 14: drift on ports 3 and 5"
	})
	f.emit(controller.Event{Kind: controller.Failed, Plane: 2, Epoch: 14, Port: -1,
		Err: "plane p2 epoch 14: drift on ports 3 and 5"})
	for _, want := range []string{
		says(".plane:nth-child(3) .why", "drift on ports 3 and 5"), says(".plane:nth-child(3) .note", "lightpath ocs set"),
		says(".plane:nth-child(3) .note", "a plane is down: drift"),
		says("#summary", "p2 out of service"), `document.querySelector("#timeline .failed") !== null`,
		`document.title === "ocs1 (plane down)"`, says("#history tr.bad", "drift on ports 3 and 5"),
	} {
		until(t, ctx, want)
	}

	// Nothing moved down while all that came.
	if h := eval[float64](t, ctx, `
		new Set([...document.querySelectorAll(".plane")].map((p) => p.getBoundingClientRect().height)).size`); h != 1 {
		t.Errorf("cards of %v heights", h)
	}
}

// TestPageOfBadCircuits: dark and missing circuits are marked and named, the cause is readable in full
// inside its card, and no switch is "well" beside them.
func TestPageOfBadCircuits(t *testing.T) {
	const lost = "plane p0 epoch 13: reconfiguration failed: light is lost: port 13 of rank 5 receives -60.00 dBm " +
		"from rank 4, want -30.00"
	long := "plane p1 epoch 14: drift of 2 circuits: port 3 is dark, desired 5: " +
		strings.Repeat("and the switch says more of it than anybody wants to read, ", 12) + "to the end."
	f := newFake(8, 3)
	f.set(func(s *controller.Snapshot) {
		s.Planes[0].State, s.Planes[0].Reason, s.Planes[0].Unlit = controller.Down, lost, []int{4}
		s.Planes[0].Cause = controller.CauseNotAsWanted
		p := &s.Planes[1]
		p.Cause = controller.CauseDrift
		p.State, p.Reason, p.Desired, p.Map = controller.Down, long, p.Map, p.Map.Clone()
		p.Map[3], p.Map[6] = circuit.Dark, 5 // shift 2: 3 -> 5, 6 -> 0
	})
	r := newRig(t, f, Options{Switches: func(context.Context) ([]SwitchHealth, error) {
		return []SwitchHealth{
			{Name: "sw0", Driver: "polatis-scpi", Planes: []string{"p0"}},
			{Name: "sw1", Driver: "polatis-scpi", Planes: []string{"p1"}},
			{Name: "sw2", Driver: "polatis-scpi", Planes: []string{"p2"}},
		}, nil
	}})
	ctx := browse(t, r, 1200, 1000)
	count := func(plane int, class string, n int) string {
		return drawn(fmt.Sprintf(".plane:nth-child(%d) %s", plane+1, class), n)
	}
	for _, want := range []string{
		count(0, ".circuit.unlit", 1), says(".plane:nth-child(1) .circuit.unlit", "4 \u2192 5, no light"),
		says(".plane:nth-child(1) .note", "No light: 4 \u2192 5"),
		count(0, ".absent", 0), count(0, ".circuit.unwanted", 0),
		count(1, ".absent", 2), says(".plane:nth-child(2) .absent", "3 \u2192 5 is missing"),
		says(".plane:nth-child(2) .note", "Missing: 3 \u2192 5, 6 \u2192 0"),
		count(1, ".circuit.unwanted", 1), says(".plane:nth-child(2) .note", "Not wanted: 6 \u2192 5"),
		says(".plane:nth-child(2) .why", "to the end."),
		count(2, ":is(.unlit, .absent, .unwanted)", 0),
		says("#switches tr:nth-child(1) td:last-child", "p0: "+lost), says("#switches tr:nth-child(2) td:last-child",
			"p1: plane p1 epoch 14: drift"),
		says("#switches tr:nth-child(3) td:last-child", "well"),
		`getComputedStyle(document.querySelector(".unlit")).stroke !==
			getComputedStyle(document.querySelector(".plane:nth-child(3) .circuit")).stroke`,
		// Nothing of the cause is cut off or has to be scrolled to.
		`[...document.querySelectorAll(".plane")].every((card) => {
			const what = card.querySelector(".what"), outer = card.getBoundingClientRect(), inner = card.querySelector(".note").getBoundingClientRect();
			return what.scrollHeight <= what.clientHeight + 1 && inner.bottom <= outer.bottom && inner.right <= outer.right;
		})`,
	} {
		until(t, ctx, want)
	}
	// When all is well again nothing is marked.
	f.set(func(s *controller.Snapshot) {
		for j := range s.Planes {
			s.Planes[j] = controller.PlaneSnapshot{Name: s.Planes[j].Name, State: controller.Resident, Epoch: 20,
				Map: circuit.Shift(8, 1)}
		}
	})
	until(t, ctx, `document.querySelectorAll(".unlit, .absent, .unwanted").length === 0 && document.querySelectorAll("#switches .bad").length === 0`)
}

func TestPageOfStandby(t *testing.T) {
	f := newFake(4, 2)
	r := newRig(t, f, Options{})
	r.charge.set(nil, "ocs2")
	ctx := browse(t, r, 1000, 800)
	for _, want := range []string{says("#role", "standby of ocs2"),
		says("#planes", "ocs2 is in charge and has the planes"), says("#token", "-")} {
		until(t, ctx, want)
	}
	// It takes over: the planes appear without a reload of the page.
	r.charge.set(f, "ocs1")
	until(t, ctx, `document.querySelectorAll(".plane").length === 2`)
	until(t, ctx, says("#role", "in charge"))
}

// A page whose controller has gone says so, and finds it again.
func TestPageLosesItsController(t *testing.T) {
	r := newRig(t, newFake(4, 1), Options{})
	ctx := browse(t, r, 1000, 800)
	until(t, ctx, says("#role", "in charge"))
	r.ended = true
	r.feed.close()
	until(t, ctx, says("#role", "not connected")+` && document.body.classList.contains("stale")`)
	r.feed.mu.Lock()
	r.feed.readers = map[*reader]struct{}{}
	r.feed.mu.Unlock()
	until(t, ctx, says("#role", "in charge")+` && !document.body.classList.contains("stale")`)
}

// Names and errors that would be markup are text.
func TestPageEscapes(t *testing.T) {
	const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"'&`
	f := newFake(4, 2)
	f.set(func(s *controller.Snapshot) {
		s.Name = hostile
		s.Planes[0].Name, s.Planes[0].Reason, s.Planes[0].State = hostile, hostile+" drift", controller.Down
		s.Planes[0].Cause = controller.CauseDrift
		s.Planes[1].State, s.Planes[1].Target, s.Planes[1].Missing = controller.Waiting, circuit.Xor(4, 1), []int{0}
		s.Planes[1].Holders = []controller.LeaseSnapshot{{Port: 1, Holder: 1, Mask: 2}}
		s.Planes[1].Verified = hostile
		for i := range s.Ports {
			s.Ports[i].Who = hostile
		}
		s.Jobs = []controller.JobSnapshot{{Job: controller.Job{ID: hostile, Name: hostile, Ports: []int{1}, Mask: 1}}}
	})
	f.waiting[1] = hostile
	p := twoPlanes()
	p.Name, p.Title = hostile, hostile
	r := newRig(t, f, Options{
		Version: hostile,
		Switches: func(context.Context) ([]SwitchHealth, error) {
			return []SwitchHealth{{Name: hostile, Driver: hostile, Planes: []string{hostile}, Error: hostile}}, nil
		},
		Plans: func(context.Context) ([]Plan, error) { return []Plan{p}, nil },
	})
	for _, k := range kinds {
		f.emit(controller.Event{Kind: k, Plane: 0, Port: 1, Who: hostile, Err: hostile, Verified: hostile,
			Holder: 1, Mask: 1})
	}
	ctx := browse(t, r, 1200, 1000)
	for _, want := range []string{
		says(".plane h3", hostile), says(".why", hostile), says(".plane:nth-child(2) .note", hostile),
		says("#history", hostile), says("#uses", hostile), says("#jobs", hostile),
		says("#ports", hostile), says("#switches", hostile), says("#plan", hostile), says("#timeline", hostile),
		says("#name", hostile), says("#version", hostile),
		fmt.Sprintf(`document.querySelectorAll("#history tr").length === %d`, len(kinds)),
	} {
		until(t, ctx, want)
	}
	if eval[bool](t, ctx, `window.hacked !== undefined || document.querySelector("img, body script") !== null`) {
		t.Error("a name has become markup")
	}
	// And the metrics survive them.
	if code, _ := r.get(t, "/metrics", nil); code != 200 {
		t.Error(code)
	}
}

func TestPageHistory(t *testing.T) {
	f := newFake(4, 2)
	r := newRig(t, f, Options{})
	for i := range 120 {
		f.emit(controller.Event{Kind: controller.Switched, Plane: i % 2, Epoch: uint32(i), Port: -1, To: circuit.Xor(4, 1)})
	}
	ctx := browse(t, r, 1200, 1000)
	rows := func(n int) string { return fmt.Sprintf(`document.querySelectorAll("#history tr").length === %d`, n) }
	until(t, ctx, rows(50))
	do(t, ctx, chromedp.Click("#older"))
	until(t, ctx, rows(100))
	do(t, ctx, chromedp.Click("#older"))
	until(t, ctx, rows(120))
	until(t, ctx, `document.getElementById("older").disabled && !document.getElementById("newest").disabled`)
	// Rows do not move while they are read.
	f.emit(controller.Event{Kind: controller.Switched, Plane: 1, Epoch: 120, Port: -1})
	until(t, ctx, says("#timeline", "epoch 120:"))
	if !eval[bool](t, ctx, rows(120)) {
		t.Error("the table moved")
	}
	eval[bool](t, ctx, `(() => { const s = document.getElementById("history-plane"); s.value = "1"; return s.dispatchEvent(new Event("change")); })()`)
	until(t, ctx, rows(50)+` && [...document.querySelectorAll("#history tr")].every((r) => r.children[1].textContent === "p1")`)
	f.emit(controller.Event{Kind: controller.Switched, Plane: 1, Epoch: 777, Port: -1})
	f.emit(controller.Event{Kind: controller.Switched, Plane: 0, Epoch: 778, Port: -1})
	until(t, ctx, says("#history tr", "777"))
}

// The journal answers after the stream has told of something newer: both are shown, in order.
func TestPageOfSlowJournal(t *testing.T) {
	f := newFake(4, 1)
	gate := make(chan struct{})
	var r *rig
	r = newRig(t, f, Options{History: func(ctx context.Context, q controller.Query) ([]controller.Event, error) {
		events := r.feed.remember(q) // of the moment that it was asked
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return events, nil
	}})
	f.emit(controller.Event{Kind: controller.Switched, Plane: 0, Epoch: 101, Port: -1, Time: time.Now().Add(-time.Minute)})
	ctx := browse(t, r, 1000, 800)
	until(t, ctx, `document.querySelectorAll(".plane").length === 1`)
	await.Until(t, "the page reads the journal", func() bool { return len(r.history) >= 2 })
	f.emit(controller.Event{Kind: controller.Switched, Plane: 0, Epoch: 102, Port: -1})
	until(t, ctx, says("#timeline", "epoch 102:"))
	close(gate)
	until(t, ctx, says("#timeline", "epoch 101:"))
	until(t, ctx, `[...document.querySelectorAll("#history tr")].map((r) => r.children[2].textContent).join() === "102,101"`)
}

func TestPagePlan(t *testing.T) {
	f := newFake(4, 2)
	p := twoPlanes()
	r := newRig(t, f, Options{Plans: func(context.Context) ([]Plan, error) { return []Plan{p}, nil }})
	n := 0
	for _, e := range carryOut(&p, []int{0, 1}, time.Now(), func() time.Duration {
		n++
		return time.Duration(n-1) * 100 * time.Microsecond
	}) {
		f.emit(e)
	}
	ctx := browse(t, r, 1200, 1000)
	until(t, ctx, `document.querySelectorAll("#plan-drawing .took").length === 3`)
	until(t, ctx, `document.querySelectorAll("#plan-drawing .planned").length === 3`)
	until(t, ctx, says("#plan-note", "200 \u00b5s late"))
}

// The ports of a plane at the size of a large switch: table, search, picture and history of one port.
func TestPagePorts(t *testing.T) {
	f := newFake(300, 8)
	f.ports[0], f.ports[2] = readings(300, []int{35}), readings(300, nil)
	f.set(huge)
	r := newRig(t, f, Options{})
	f.emit(controller.Event{Kind: controller.Dimmed, Plane: 0, Port: 35, Err: "port 35/335 receives 3.40 dB less"})
	f.emit(controller.Event{Kind: controller.Switched, Plane: 0, Port: -1, Epoch: 1, From: circuit.Shift(300, 1),
		To: circuit.Shift(300, 2)})
	f.emit(controller.Event{Kind: controller.Attached, Plane: -1, Port: 7})
	ctx := browse(t, r, 1440, 1000)
	rows := func(n int) string {
		return fmt.Sprintf(`document.querySelectorAll("#ports tbody tr").length === %d`, n)
	}
	search := func(text string) {
		do(t, ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const s = document.getElementById("search");
			s.value = %q; s.dispatchEvent(new Event("input")); }`, text)))
	}
	for _, want := range []string{
		rows(300), says("#ports tr[data-key='35']", "fading light"), says("#ports tr[data-key='35'] td.bad", "fading light"),
		says("#ports tr[data-key='35']", "35/335"), says("#ports tr[data-key='35']", "42"),
		drawn("#picture .circuit", 300), says(".plane .note", "Fading light at ports 35, 120"),
		says("#summary", "2 ports with fading light"),
		`document.querySelectorAll("*").length < 6000`, // a path has many circuits
	} {
		until(t, ctx, want)
	}
	search("job:42 30-50")
	until(t, ctx, rows(10))
	until(t, ctx, drawn("#picture .circuit:not(.faint)", 11))
	search("node299")
	until(t, ctx, rows(1))
	search("")
	until(t, ctx, rows(300))
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector("#ports tr[data-key='35']").click()`))
	until(t, ctx, `[...document.querySelectorAll("#history tr")].map((r) => r.dataset.kind).join() === "switched,dimmed"`)
	until(t, ctx, `document.querySelectorAll("#picture text").length < 40`) // closer
	do(t, ctx, chromedp.Click("#whole"))
	until(t, ctx, `document.querySelectorAll("#picture text").length > 60`)
	// Another plane, by its picture.
	do(t, ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector(".plane:nth-child(3) a").click()`))
	until(t, ctx, `document.getElementById("ports-plane").value === "2"`)
	until(t, ctx, says("#ports tr[data-key='35'] td:nth-child(3)", "38")+` && `+says("#ports tr[data-key='35']", "TUNED"))
}
