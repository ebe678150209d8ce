package web

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// patience bounds waits for what must come; it is no measure of how fast it should.
const patience = 60 * time.Second

// rig is a served view of a fake controller, followed until the test ends.
type rig struct {
	*Server
	fake   *fake
	charge *charge
	url    string
	ended  bool // the test has closed the feed of events
}

func newRig(t *testing.T, f *fake, o Options) *rig {
	t.Helper()
	r := &rig{fake: f, charge: &charge{}}
	if f != nil {
		r.charge.set(f, f.snap.Name)
	}
	o.Controller = r.charge.get
	o.Name = cmp.Or(o.Name, "ocs1")
	o.Version = cmp.Or(o.Version, "1.2.3")
	if f != nil && o.Planes == nil {
		for _, p := range f.snap.Planes {
			o.Planes = append(o.Planes, p.Name)
		}
	}
	var err error
	if r.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.timeout = patience
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	h := httptest.NewServer(r)
	r.url = h.URL
	t.Cleanup(func() { cancel(); <-done; h.Close() })
	if f != nil {
		await.Until(t, "the controller is watched", func() bool { return f.watched() > 0 })
	}
	return r
}

// get reads a path into v, which may be nil, and returns status and body.
func (r *rig) get(t *testing.T, path string, v any) (int, string) {
	t.Helper()
	answer, err := http.Get(r.url + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	if v != nil {
		if err := json.Unmarshal(body, v); err != nil {
			t.Fatalf("%s: %v in %s", path, err, body)
		}
	}
	return answer.StatusCode, string(body)
}

// TestKindOfLostEvents: operators can ask whether the journal has lost events.
func TestKindOfLostEvents(t *testing.T) {
	if all, err := ParseKinds([]string{"lost"}); err != nil || len(all) != 1 || all[0] != controller.Lost {
		t.Errorf("%v, %v", all, err)
	}
}

func TestStatus(t *testing.T) {
	f := newFake(4, 3)
	const holder = 0xfedcba9876543210 // more than a number of a browser holds
	f.set(func(s *controller.Snapshot) {
		lease := []controller.LeaseSnapshot{{Port: 2, Holder: holder, Mask: 0b011, Since: time.Now()}}
		s.Planes[0].Holders, s.Planes[1].Holders = lease, lease
		s.Queue = []controller.LeaseSnapshot{{Port: 1, Holder: 7, Mask: 0b110}, {Port: 3, Holder: 8, Mask: 0b100}}
		s.Planes[1].State, s.Planes[1].Missing, s.Planes[1].Posted = controller.Waiting, []int{1, 3}, []int{0, 2}
		s.Ports[3].Attached = false
		p := &s.Planes[2]
		p.State, p.Cause = controller.Down, controller.CauseDrift
		p.Reason = "plane p2: the switch's map is not the one that the change starts from"
	})
	f.waiting[1] = "epoch 14 waits for ports 1 and 3"
	r := newRig(t, f, Options{Switches: func(context.Context) ([]SwitchHealth, error) {
		return []SwitchHealth{{Name: "sw", Driver: "gnmi", Planes: []string{"p0"}}}, nil
	}})
	var st Status
	if code, body := r.get(t, "/api/status", &st); code != 200 || st.Name != "ocs1" || !st.Leader || st.Token != 41 ||
		st.Version != "1.2.3" || st.InCharge != "ocs1" {
		t.Fatalf("%d %s", code, body)
	}
	if v := st.Views[1]; v.Waiting != f.waiting[1] || !slices.Equal(v.Gone, []int{3}) {
		t.Errorf("plane 1: %+v", v)
	}
	if v := st.Views[2]; v.Cause != controller.CauseDrift || v.Advice == nil ||
		v.Advice.Section != "a plane is down: drift" {
		t.Errorf("plane 2: %+v", v)
	}
	want := []Use{
		{Granted: true, Holder: "fedcba9876543210", Port: 2, Planes: []int{0, 1}},
		{Holder: "0000000000000007", Port: 1, Planes: []int{1, 2}, Behind: []string{"fedcba9876543210"}},
		{Holder: "0000000000000008", Port: 3, Planes: []int{2}, Behind: []string{"0000000000000007"}},
	}
	for i, u := range st.Uses {
		if w := want[i]; u.Granted != w.Granted || u.Holder != w.Holder || u.Port != w.Port ||
			!slices.Equal(u.Planes, w.Planes) || !slices.Equal(u.Behind, w.Behind) {
			t.Errorf("use %d: %+v, want %+v", i, u, w)
		}
	}
	if len(st.Uses) != 3 || len(st.Switches) != 1 {
		t.Errorf("%+v", st)
	}
}

func TestProbes(t *testing.T) {
	f := newFake(2, 1)
	r := newRig(t, f, Options{})
	check := func(when, path string, code int, text string) {
		t.Helper()
		if c, body := r.get(t, path, nil); c != code || !strings.Contains(body, text) {
			t.Errorf("%s: %s: %d %s", when, path, c, body)
		}
	}
	check("in charge", "/healthz", 200, "ok")
	check("in charge", "/readyz", 200, "leader")
	r.charge.set(nil, "ocs2")
	check("standby", "/healthz", 200, "ok")
	check("standby", "/readyz", 200, "standby of ocs2")
	check("standby", "/api/status", 200, `"in_charge":"ocs2"`)
	r.charge.set(nil, "")
	check("alone", "/readyz", 503, "no controller")
	r.charge.set(f, "ocs1")
	f.mu.Lock()
	f.err = controller.ErrStopped
	f.mu.Unlock()
	check("stopped", "/healthz", 503, "stopped")
	check("stopped", "/readyz", 503, "stopped")
	check("stopped", "/api/status", 200, `"problem":"controller is stopped"`)
}

// A core that does not answer costs one goroutine, and its clients an error.
func TestHangingCore(t *testing.T) {
	f := newFake(2, 1)
	r := newRig(t, f, Options{})
	hang := make(chan struct{})
	f.mu.Lock()
	f.hang = hang
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 {
		if _, err := r.snapshot(ctx, f); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	first := r.feed.snapshots.ask(f)
	if r.feed.snapshots.ask(f) != first {
		t.Error("two questions at a time")
	}
	close(hang)
	if s, err := r.snapshot(context.Background(), f); err != nil || s.Name != "ocs1" {
		t.Errorf("%v: %v", s.Name, err)
	}
}

func TestReadOnly(t *testing.T) {
	r := newRig(t, newFake(2, 1), Options{})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/", "/api/status", "/api/history", "/metrics"} {
			q, _ := http.NewRequest(method, r.url+path, strings.NewReader("{}"))
			answer, err := http.DefaultClient.Do(q)
			require.NoError(t, err)
			answer.Body.Close()
			if answer.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, answer.StatusCode)
			}
		}
	}
	answer, err := http.Get(r.url + "/")
	require.NoError(t, err)
	defer answer.Body.Close()
	if csp := answer.Header.Get("Content-Security-Policy"); csp != policy || strings.Contains(csp, "unsafe") ||
		strings.Contains(csp, "*") {
		t.Errorf("policy %q", csp)
	}
}

// The page refers to nothing that is elsewhere, and has nothing that its own policy forbids.
func TestPageFilesAreSelfContained(t *testing.T) {
	entries, err := pageFiles.ReadDir("page")
	if err != nil || len(entries) < 5 {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		data, err := pageFiles.ReadFile("page/" + e.Name())
		require.NoError(t, err)
		text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http://", "https://", "innerHTML", "outerHTML", "insertAdjacent", "document.write",
			"eval(", "style=", "onclick=", "@import", "url("} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", e.Name(), bad)
			}
		}
		for i := range len(text) {
			if text[i] >= 0x80 {
				t.Errorf("%s: byte %d is not ASCII", e.Name(), i)
				break
			}
		}
	}
}

// stream reads events of /api/events.
type stream struct {
	body io.ReadCloser
	scan *bufio.Scanner
	now  map[string]any // the state that the stream has told of
}

func (r *rig) stream(t *testing.T) *stream {
	t.Helper()
	answer, err := http.Get(r.url + "/api/events")
	require.NoError(t, err)
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", answer.StatusCode, answer.Header)
	}
	t.Cleanup(func() { answer.Body.Close() })
	s := &stream{body: answer.Body, scan: bufio.NewScanner(answer.Body)}
	s.scan.Buffer(nil, 1<<20)
	return s
}

// next returns the next event of a kind. A change of the state counts as a "status" with the whole state.
func (s *stream) next(t *testing.T, kind string, v any) {
	t.Helper()
	timer := time.AfterFunc(patience, func() { s.body.Close() })
	defer timer.Stop()
	for event := ""; s.scan.Scan(); {
		line := s.scan.Text()
		if e, ok := strings.CutPrefix(line, "event: "); ok {
			event = e
		}
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case !ok:
		case event == "status":
			s.now = nil
			require.NoError(t, json.Unmarshal([]byte(data), &s.now))
		case event == "change":
			s.change(t, data)
		}
		if ok && event == "change" || ok && event == "status" {
			event = "status"
			text, err := json.Marshal(s.now)
			require.NoError(t, err)
			data = string(text)
		}
		if ok && event == kind {
			if st, is := v.(*Status); is {
				*st = Status{}
			}
			require.NoError(t, json.Unmarshal([]byte(data), v))
			return
		}
	}
	t.Fatalf("no %s: %v", kind, s.scan.Err())
}

// change puts the fields that have changed into the state.
func (s *stream) change(t *testing.T, data string) {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(data), &fields))
	for name, value := range fields {
		list, isList := s.now[name].([]any)
		elements, some := value.(map[string]any)
		if !isList || !some {
			s.now[name] = value
			continue
		}
		for i, element := range elements {
			at, err := strconv.Atoi(i)
			require.NoError(t, err)
			list[at] = element
		}
	}
}

func TestStream(t *testing.T) {
	f := newFake(4, 2)
	r := newRig(t, f, Options{})
	s := r.stream(t)
	var st Status
	if s.next(t, "status", &st); st.Name != "ocs1" || st.Planes[0].Epoch != 12 {
		t.Fatalf("%+v", st)
	}
	f.set(func(snap *controller.Snapshot) { snap.Planes[0].Epoch = 13 })
	for st.Planes[0].Epoch != 13 {
		s.next(t, "status", &st)
	}
	f.emit(controller.Event{Kind: controller.Failed, Plane: 1, Port: -1, Err: "switch sw does not answer"})
	var h historyMessage
	if s.next(t, "history", &h); len(h.Events) != 1 || h.Events[0].Kind != controller.Failed {
		t.Fatalf("%+v", h)
	}
	// More in a beat than a page can show: the newest, and how many there were.
	const flood = 1000
	for i := range flood {
		f.emit(controller.Event{Kind: controller.Switched, Plane: 0, Epoch: uint32(14 + i), Port: -1})
	}
	got := 0
	for got < flood {
		s.next(t, "history", &h)
		if got += len(h.Events) + h.Skipped; len(h.Events) > batch {
			t.Fatalf("%d events at once", len(h.Events))
		}
	}
	if last := h.Events[len(h.Events)-1].Epoch; got != flood || last != 14+flood-1 {
		t.Errorf("%d events up to epoch %d", got, last)
	}
	// Another takes over: the stream goes on, and so does the watch of the new core.
	r.charge.set(nil, "ocs2")
	for st.InCharge != "ocs2" {
		s.next(t, "status", &st)
	}
	await.Until(t, "the old core is left alone", func() bool { return f.watched() == 0 })
}

// A reader that does not read is cut; others do not notice.
func TestSlowReaderIsCut(t *testing.T) {
	r := newRig(t, newFake(2, 1), Options{})
	slow, ok := r.feed.join()
	if !ok {
		t.Fatal("no room")
	}
	fast, _ := r.feed.join()
	for range backlog + 1 {
		r.feed.send(message{"status", []byte("{}")})
		<-fast.messages
	}
	n := 0
	for range slow.messages { // ends: it is closed
		n++
	}
	if n > backlog || r.feed.count() != 1 {
		t.Errorf("%d messages, %d readers", n, r.feed.count())
	}
	for r.feed.count() < maxReaders {
		r.feed.join()
	}
	if code, _ := r.get(t, "/api/events", nil); code != http.StatusServiceUnavailable {
		t.Errorf("reader %d: %d", maxReaders+1, code)
	}
	r.feed.close()
	if _, ok := r.feed.join(); ok {
		t.Error("a reader joined what has ended")
	}
}

func TestHistory(t *testing.T) {
	f := newFake(4, 2)
	r := newRig(t, f, Options{})
	f.emit(controller.Event{Kind: controller.Switched, Plane: 0, Port: -1, Time: time.Now().Add(-2 * time.Hour)})
	for i := range 25 {
		f.emit(controller.Event{Kind: controller.Switched, Plane: i % 2, Epoch: uint32(i), Port: -1})
	}
	f.emit(controller.Event{Kind: controller.Granted, Plane: -1, Port: 1, Holder: 1 << 63, Mask: 3})
	for _, c := range []struct {
		query string
		n     int
	}{
		{"", 27}, {"?since=1h", 26}, {"?plane=p1", 12}, {"?plane=1&limit=5", 5}, {"?kind=granted", 1},
		{"?kind=granted&kind=switched&since=1h", 26}, {"?before=1", 0}, {"?plane=", 27},
	} {
		var p HistoryPage
		if code, body := r.get(t, "/api/history"+c.query, &p); code != 200 || len(p.Events) != c.n {
			t.Errorf("%q: %d, %d events: %.200s", c.query, code, len(p.Events), body)
		}
	}
	var p HistoryPage
	r.get(t, "/api/history?kind=granted", &p)
	if e := p.Events[0]; e.HolderID != "8000000000000000" || !slices.Equal(e.Planes, []int{0, 1}) {
		t.Errorf("%+v", e)
	}
	// Paging back meets every event once, newest first.
	var all []uint64
	for before, pages := uint64(0), 0; pages == 0 || before != 0; pages++ {
		var p HistoryPage
		r.get(t, fmt.Sprintf("/api/history?limit=10&before=%d", before), &p)
		for _, e := range p.Events {
			all = append(all, e.Seq)
		}
		before = p.Before
	}
	slices.Reverse(all)
	if len(all) != 27 || !slices.IsSorted(all) || all[0] != 1 || all[26] != 27 {
		t.Errorf("paged: %v", all)
	}
	for query, text := range map[string]string{
		"plane=p9": `"plane"`, "plane=2": `"plane"`, "since=tomorrow": `"since"`, "since=-1h": `"since"`,
		"limit=0": `"limit"`, "limit=100000": `"limit"`,
		"kind=gone": `"kind"`, "before=x": `"before"`, "drop=table": `"drop"`,
	} {
		var e problem
		if code, _ := r.get(t, "/api/history?"+query, &e); code != 400 || !strings.Contains(e.Error, text) ||
			strings.Contains(e.Error, "\n") {
			t.Errorf("%s: %d %q", query, code, e.Error)
		}
	}
}

func TestHistoryOfTheJournal(t *testing.T) {
	var asked controller.Query
	fail := errors.New("etcd is away")
	r := newRig(t, newFake(2, 2), Options{History: func(_ context.Context,
		q controller.Query) ([]controller.Event, error) {
		asked = q
		if q.Plane == 1 {
			return nil, fail
		}
		return []controller.Event{{Seq: 9}, {Seq: 8}}[:min(2, q.Limit)], nil
	}})
	var p HistoryPage
	if r.get(t, "/api/history?limit=1", &p); asked.Limit != 2 || p.Before != 9 || len(p.Events) != 1 {
		t.Errorf("asked %+v, answer %+v", asked, p)
	}
	if code, body := r.get(t, "/api/history?plane=p1", nil); code != 503 || !strings.Contains(body, "etcd is away") {
		t.Errorf("%d %s", code, body)
	}
}

// TestLongPage: a page has more events than one answer of the journal, and leads to the older ones.
func TestLongPage(t *testing.T) {
	store := journal.NewMemory("test", 3*journal.MaxEvents)
	rule, err := store.Campaign(t.Context())
	require.NoError(t, err)
	for range 3 * journal.MaxEvents {
		rule.Record(controller.Event{Plane: -1}, nil)
	}
	r := newRig(t, newFake(2, 2), Options{History: store.History})
	var p HistoryPage
	r.get(t, fmt.Sprintf("/api/history?limit=%d", 2*journal.MaxEvents), &p)
	if len(p.Events) != 2*journal.MaxEvents || p.Before != journal.MaxEvents+1 {
		t.Errorf("%d events, before %d", len(p.Events), p.Before)
	}
}

func FuzzHistoryQuery(f *testing.F) {
	for _, q := range []string{"", "plane=p0&since=1h&limit=3&kind=switched&before=9", "since=2006-01-02T15:04:05Z",
		"plane=%00&kind=%ff", "limit=-1;x"} {
		f.Add(q)
	}
	server, err := New(Options{Controller: func() (controller.Controller, string) {
		return nil, ""
	}, Planes: []string{"p0"}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, query string) {
		q := httptest.NewRequest(http.MethodGet, "/api/history", nil)
		q.URL.RawQuery = query
		w := httptest.NewRecorder()
		server.ServeHTTP(w, q)
		if w.Code != 200 && w.Code != 400 || !json.Valid(w.Body.Bytes()) || strings.Count(w.Body.String(), "\n") != 1 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
