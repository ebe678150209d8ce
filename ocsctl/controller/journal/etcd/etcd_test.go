package etcd

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/plans/circuit"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir) // serves the others
	journaltest.Run(t, func(t *testing.T, keep int) journal.Store {
		return open(t, dir, func(c *Config) { c.Prefix, c.History = "/"+t.Name(), keep })
	})
}

// TestFullQueue fills the history's queue. The journal counts the dropped events in a Lost event and keeps the
// state of the plane. It answers a dropped event only after it has stored the Lost event: without that, a takeover
// would not know of the rank that attached.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	server := open(t, t.TempDir())
	r := newRelay(t, server.conf.socket())
	const room, n = 16, 100
	a := open(t, "", through("a", r.address), func(c *Config) { c.Queue, c.Lease = room, time.Minute })
	l := lead(t, a)
	r.stick(there, back)
	for i := range uint32(n) {
		l.Record(controller.Event{Seq: uint64(i) + 1, Time: time.Now(), Kind: controller.Switched, Epoch: i + 1,
			To: circuit.Shift(journaltest.Ports, int(i)), Port: -1}, nil)
	}
	answer := make(chan error, 1)
	attached := controller.Event{Seq: n + 1, Time: time.Now(), Kind: controller.Attached, Plane: -1}
	l.Record(attached, func(err error) { answer <- err })
	select {
	case err := <-answer:
		t.Fatalf("the journal answered before it stored the Lost event: %v", err)
	default:
	}
	r.free()
	require.NoError(t, <-answer)
	events, err := server.History(t.Context(), controller.AllEvents())
	if err != nil || len(events) != room+1 {
		t.Fatalf("%d events, want %d: %v", len(events), room+1, err)
	}
	if e := events[0]; e.Kind != controller.Lost || !strings.Contains(e.Err, fmt.Sprint(n+1-room)) ||
		events[1].Epoch != room {
		t.Fatalf("the newest event is %+v, want the loss of %d events after epoch %d", e, n+1-room, room)
	}
	attached.Seq++
	l.Record(attached, nil)
	events = journaltest.Await(t, server, controller.AllEvents(), func(e []controller.Event) bool {
		return len(e) == room+2
	})
	if events[0].Kind != controller.Attached || events[0].Seq != n+2 {
		t.Fatalf("after the loss: %+v", events[0])
	}
	journaltest.Resign(t, l)
	if s := storedState(t, server); s.Epoch != n || !s.Map.Equal(circuit.Shift(journaltest.Ports, n-1)) {
		t.Fatalf("the plane is recorded at %+v", s)
	}
}

// TestVersions: a store of a later format is refused, naming who wrote it and who reads it.
func TestVersions(t *testing.T) {
	t.Parallel()
	server := open(t, t.TempDir())
	write(t, server, formatKey, `{"version":9,"software":"7.3.1","more":[]}`)
	conf := Config{Name: "a", Software: "0.1.0", Endpoints: []string{"unix:" + server.conf.socket()}}
	_, err := Open(t.Context(), conf)
	wants(t, err, ocsctl.ErrVersion, server.key(formatKey), "format 9", "7.3.1", "0.1.0")
	_, err = server.Campaign(t.Context()) // one that was there before
	wants(t, err, ocsctl.ErrVersion, "7.3.1", "0.1.0")
}

// wants checks that an error is one line, of a kind, and says what it should.
func wants(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%v is not %v", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
		t.Errorf("%q is not one clear line", err)
	}
}

// TestCorrupt: a value that no controller wrote is refused with its key.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	encoded, err := journal.EncodePlane(1, &journal.State{Reserved: 9, Recovered: controller.Recovered{
		Epoch: 3, Epochs: []uint32{3, 3, 1, 2}, Map: circuit.Shift(journaltest.Ports, 1), Intent: &controller.Intent{Plane: 1,
			Epoch: 3, To: circuit.Shift(journaltest.Ports, 2), Epochs: []uint32{4, 4, 1, 3}}}}, journal.Author{Token: 1})
	require.NoError(t, err)
	good := string(encoded)
	if _, _, err := journal.DecodePlane(journal.PlaneKey(1), encoded); err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("%s has no %s", good, from)
		}
		return strings.Replace(good, from, to, 1)
	}
	for name, test := range map[string]struct {
		value string
		kind  error
		words string
	}{
		"empty":        {"", journal.ErrCorrupt, "planes/001"},
		"garbage":      {"\x00\xff{", journal.ErrCorrupt, "planes/001"},
		"cut":          {good[:len(good)-7], journal.ErrCorrupt, "planes/001"},
		"more":         {good + "{}", journal.ErrCorrupt, "planes/001"},
		"no version":   {change(`"version":2`, `"version":0`), journal.ErrCorrupt, "version"},
		"later":        {change(`"version":2`, `"version":3`), ocsctl.ErrVersion, "format 3"},
		"unknown":      {change(`"plane":1`, `"plain":1`), journal.ErrCorrupt, "plain"},
		"other plane":  {change(`"plane":1`, `"plane":0`), journal.ErrCorrupt, "plane"},
		"other map":    {change(`[1,2,3,0]`, `[1,2,0,3]`), journal.ErrCorrupt, "digest"},
		"no map":       {change(`[1,2,3,0]`, `[1,1,3,0]`), journal.ErrCorrupt, "map[1]"},
		"reserved":     {change(`"reserved":9`, `"reserved":3`), journal.ErrCorrupt, "epoch"},
		"intent":       {change(`[2,3,0,1]`, `[2,2,0,1]`), journal.ErrCorrupt, "intent"},
		"short intent": {change(`[2,3,0,1]`, `[1,0]`), journal.ErrCorrupt, "intent"},
		"late intent":  {change(`"intent":{"epoch":3`, `"intent":{"epoch":9`), journal.ErrCorrupt, "intent"},
		"few epochs":   {change(`[3,3,1,2]`, `[3,3,1]`), journal.ErrCorrupt, "epochs"},
		"late epochs":  {change(`[3,3,1,2]`, `[3,4,1,2]`), journal.ErrCorrupt, "epochs"},
		"late move":    {change(`[4,4,1,3]`, `[4,5,1,3]`), journal.ErrCorrupt, "intent.epochs"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, c, journal.PlaneKey(1), test.value)
			l, err := c.Campaign(t.Context())
			require.NoError(t, err)
			defer journaltest.Resign(t, l)
			_, err = l.Recovered(journaltest.Ports, journaltest.Planes)
			wants(t, err, test.kind, c.key(journal.PlaneKey(1)), test.words)
			if err := journaltest.Intend(t, l, intent(0)); err == nil {
				t.Error("a journal that could not be read takes an intent")
			}
		})
	}
}

// TestCorruptHistory: so is an event.
func TestCorruptHistory(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	for key, value := range map[string]string{
		segmentKey(5):          `{"version":1,"events":[{"seq":6,"time":"2026-01-02T03:04:05Z","kind":"attached","plane":-1,"epoch":0,"port":0}]}`,
		segmentKey(6):          `{"version":1,"events":[]}`,
		segmentKey(7):          `{"version":3,"events":[]}`,
		historyKey + "seventh": `{}`,
	} {
		write(t, c, key, value)
		_, err := c.Campaign(t.Context())
		kind := journal.ErrCorrupt
		if key == segmentKey(7) {
			kind = ocsctl.ErrVersion
		}
		wants(t, err, kind, c.key(key))
		_, err = c.History(t.Context(), controller.AllEvents())
		wants(t, err, kind, c.key(key))
		await.Success(t, "a deletion", func() error {
			_, err := c.etcd.Delete(t.Context(), c.key(key))
			return err
		})
	}
	lead(t, c)
}

func TestConfig(t *testing.T) {
	for name, test := range map[string]struct {
		conf Config
		word string
	}{
		"name":         {Config{Dir: "d"}, "name"},
		"nowhere":      {Config{Name: "a"}, "dir or endpoints"},
		"lease":        {Config{Name: "a", Dir: "d", Lease: time.Millisecond}, "lease"},
		"history":      {Config{Name: "a", Dir: "d", History: -1}, "history"},
		"queue":        {Config{Name: "a", Dir: "d", Queue: -1}, "queue"},
		"long":         {Config{Name: "a", Dir: "/" + strings.Repeat("d", 120)}, "dir"},
		"file":         {Config{Name: "a", Dir: "/dev/null/x"}, "dir"},
		"off loopback": {Config{Name: "a", Endpoints: []string{"127.0.0.1:1", "10.0.0.1:2379"}}, "endpoints[1]"},
		"plain":        {Config{Name: "a", Endpoints: []string{"http://10.0.0.1:2379"}}, "endpoints[0]"},
		"no files":     {Config{Name: "a", Endpoints: []string{"https://127.0.0.1:2379"}}, "endpoints[0]"},
		"no port":      {Config{Name: "a", Endpoints: []string{"127.0.0.1"}}, "endpoints[0]"},
		"path":         {Config{Name: "a", Endpoints: []string{"http://127.0.0.1:1/x"}}, "endpoints[0]"},
		"scheme":       {Config{Name: "a", Endpoints: []string{"ftp://127.0.0.1:1"}}, "endpoints[0]"},
		"absent files": {Config{Name: "a", Endpoints: []string{"127.0.0.1:1"}, CA: "absent", Cert: "absent", Key: "absent"},
			"absent"},
	} {
		if _, err := Open(t.Context(), test.conf); err == nil || !strings.Contains(err.Error(), test.word) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCompaction: a store of our own does not keep what was.
func TestCompaction(t *testing.T) {
	t.Parallel()
	// The leader compacts when it renews its lease, after 5 s; it loses the lease only if the host stands still for 20 s.
	c := open(t, t.TempDir(), func(c *Config) { c.Lease = 25 * time.Second })
	l := lead(t, c)
	for i := range uint32(compactEvery) {
		require.NoError(t, journaltest.Intend(t, l, intent(i)))
	}
	await.Until(t, "old revisions go", func() bool {
		_, err := c.etcd.Get(t.Context(), c.key(journal.PlaneKey(0)), clientv3.WithRev(int64(l.token)))
		return errors.Is(err, rpctypes.ErrCompacted)
	})
	require.NoError(t, journaltest.Intend(t, l, intent(compactEvery)))
}

// TestUnusableDirectory: what etcd cannot open is an error, not the end of the process.
func TestUnusableDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir)
	journaltest.Resign(t, lead(t, c))
	_ = c.Close()
	files, err := filepath.Glob(filepath.Join(dir, "data", "member", "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		spoil(t, f)
	}
	_, err = Open(t.Context(), c.conf)
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatal(err)
	}
}
