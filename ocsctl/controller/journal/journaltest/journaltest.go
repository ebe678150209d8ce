// Package journaltest is the conformance suite of stores.
//
// Layer: tests of package journal and of those below it.
package journaltest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/plans/circuit"
)

// Ports and Planes are the size of the suite's fabric.
const (
	Ports  = 4
	Planes = 2
)

// Patience bounds every wait of a test.
const Patience = 30 * time.Second

// Run tests a store for the contract of [journal.Store] and [journal.Leadership]. open returns a new store that keeps
// the given number of events, and closes it when the test ends.
func Run(t *testing.T, open func(t *testing.T, keep int) journal.Store) {
	for name, test := range map[string]func(*testing.T, journal.Store){
		"FirstRule":     firstRule,
		"Takeover":      takeover,
		"UnknownEnd":    unknownEnd,
		"Epochs":        epochs,
		"PortEpochs":    portEpochs,
		"Failed":        failed,
		"Disabled":      disabled,
		"Jobs":          jobs,
		"Confirmed":     confirmed,
		"Deposed":       deposed,
		"OneRuler":      oneRuler,
		"OtherFabric":   otherFabric,
		"History":       history,
		"HistoryGoesOn": historyGoesOn,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, 1000)) })
	}
	t.Run("HistoryForgets", func(t *testing.T) { historyForgets(t, open(t, forgetful)) })
}

// Lead campaigns, and fails the test on an error.
func Lead(t *testing.T, s journal.Store) journal.Leadership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	l, err := s.Campaign(ctx)
	require.NoError(t, err)
	if _, err := l.Recovered(Ports, Planes); err != nil {
		t.Fatal(err)
	}
	return l
}

// Intend makes an intent durable, or returns the error.
func Intend(t *testing.T, l controller.Journal, i controller.Intent) error {
	t.Helper()
	return answer(t, "an intent", func(done func(error)) { l.Intend(i, done) })
}

// Resign ends a rule by resigning.
func Resign(t *testing.T, l journal.Leadership) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	require.NoError(t, l.Resign(ctx))
}

// Next begins the rule after l, and returns what it finds.
func Next(t *testing.T, s journal.Store, l journal.Leadership) (journal.Leadership, []controller.Recovered) {
	t.Helper()
	Resign(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	next, err := s.Campaign(ctx)
	require.NoError(t, err)
	if next.Token() <= l.Token() {
		t.Fatalf("token %d after %d", next.Token(), l.Token())
	}
	at, err := next.Recovered(Ports, Planes)
	require.NoError(t, err)
	return next, at
}

func switched(plane int, epoch uint32, to circuit.Permutation) controller.Event {
	return controller.Event{Time: time.Now(), Kind: controller.Switched, Plane: plane, Epoch: epoch, To: to, Port: -1}
}

func firstRule(t *testing.T, s journal.Store) {
	l, err := s.Campaign(t.Context())
	require.NoError(t, err)
	if l.Err() != nil || l.Token() == 0 || s.Leader().Token != l.Token() {
		t.Fatalf("leads with token %d: %v; leader %+v", l.Token(), l.Err(), s.Leader())
	}
	if at, err := l.Recovered(Ports, Planes); at != nil || err != nil {
		t.Fatalf("recovered %v from nothing: %v", at, err)
	}
	Resign(t, l)
}

func takeover(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	l.Baseline([]controller.Recovered{{Map: circuit.AllDark(Ports)}, {Map: circuit.Shift(Ports, 1)}})
	require.NoError(t, Intend(t, l, controller.Intent{Plane: 0, Epoch: 0, To: circuit.Shift(Ports, 2)}))
	l.Record(switched(0, 1, circuit.Shift(Ports, 2)), nil)
	l, at := Next(t, s, l)
	for j, want := range []circuit.Permutation{circuit.Shift(Ports, 2), circuit.Shift(Ports, 1)} {
		if got := at[j]; !got.Map.Equal(want) || got.Intent != nil || got.Failed || got.Disabled != "" {
			t.Errorf("plane %d: %+v, want %v", j, got, want)
		}
	}
	if at[0].Epoch != 1 || at[1].Epoch != 0 {
		t.Errorf("epochs %d and %d, but ranks know 1 and 0", at[0].Epoch, at[1].Epoch)
	}
	l.Baseline([]controller.Recovered{{Map: circuit.AllDark(Ports)}, {Map: circuit.AllDark(Ports)}})
	l, at = Next(t, s, l)
	if !at[1].Map.Equal(circuit.Shift(Ports, 1)) {
		t.Errorf("a baseline replaced a record: %+v", at[1])
	}
	Resign(t, l)
}

// unknownEnd: a crash between the intent and the switch leaves the intent.
func unknownEnd(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	require.NoError(t, Intend(t, l, controller.Intent{Plane: 1, Epoch: 6, To: circuit.Shift(Ports, 1)}))
	l.Record(switched(1, 7, circuit.Shift(Ports, 1)), nil)
	require.NoError(t, Intend(t, l, controller.Intent{Plane: 1, Epoch: 7, To: circuit.Shift(Ports, 3)}))
	l, at := Next(t, s, l)
	defer Resign(t, l)
	got := at[1]
	if !got.Map.Equal(circuit.Shift(Ports, 1)) || got.Intent == nil || got.Intent.Plane != 1 || got.Intent.Epoch != 7 ||
		!got.Intent.To.Equal(circuit.Shift(Ports, 3)) {
		t.Fatalf("recovered %+v, intent %+v", got, got.Intent)
	}
	if got.Epoch < 8 {
		t.Fatalf("epoch %d may have been published", got.Epoch)
	}
	if at[0].Map != nil || at[0].Epoch != 0 {
		t.Fatalf("plane 0 was never recorded: %+v", at[0])
	}
}

// epochs: a rule after intents begins above all epochs that may have been published.
func epochs(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	at := []controller.Recovered{{}, {}}
	for range 5 {
		for e := at[0].Epoch; e < at[0].Epoch+3; e++ {
			require.NoError(t, Intend(t, l, controller.Intent{Plane: 0, Epoch: e, To: circuit.Shift(Ports, int(e))}))
		}
		published := at[0].Epoch + 3
		l, at = Next(t, s, l)
		if at[0].Epoch != published {
			t.Fatalf("begins with epoch %d, but %d may have been published", at[0].Epoch, published)
		}
	}
	Resign(t, l)
}

// portEpochs: the next rule knows the epochs of ports, and those after the last intent. A failure makes them equal.
func portEpochs(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	moved := switched(0, 2, circuit.Shift(Ports, 1))
	moved.Epochs = []uint32{2, 2, 1, 1}
	l.Record(moved, nil)
	next := controller.Intent{Epoch: 2, To: circuit.Shift(Ports, 2), Epochs: []uint32{2, 2, 2, 2}}
	require.NoError(t, Intend(t, l, next))
	l, at := Next(t, s, l)
	if got := at[0]; got.Epoch != 3 || !slices.Equal(got.Epochs, moved.Epochs) || !reflect.DeepEqual(*got.Intent, next) {
		t.Fatalf("recovered %+v, intent %+v", got, got.Intent)
	}
	moved = switched(0, 3, next.To)
	moved.Epochs = next.Epochs
	l.Record(moved, nil)
	l, at = Next(t, s, l)
	if got := at[0]; got.Epoch != 3 || !slices.Equal(got.Epochs, next.Epochs) {
		t.Fatalf("recovered %+v", got)
	}
	l.Record(controller.Event{Time: time.Now(), Kind: controller.Failed, Plane: 0, Epoch: 3, Port: -1}, nil)
	l, at = Next(t, s, l)
	defer Resign(t, l)
	if at[0].Epochs != nil {
		t.Errorf("recovered %+v", at[0])
	}
}

// failed: a plane that had failed begins above all epochs that it may have had since.
func failed(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	l.Record(controller.Event{Time: time.Now(), Kind: controller.Failed, Plane: 0, Epoch: 3, Port: -1, Err: "drift"}, nil)
	l, at := Next(t, s, l)
	if !at[0].Failed || at[0].Epoch < 3+journal.EpochBlock/2 {
		t.Fatalf("recovered %+v", at[0])
	}
	l.Record(controller.Event{Time: time.Now(), Kind: controller.Restored, Plane: 0, Epoch: at[0].Epoch + 1,
		To: circuit.Shift(Ports, 1), Port: -1}, nil)
	want := at[0].Epoch + 1
	l, at = Next(t, s, l)
	defer Resign(t, l)
	if at[0].Failed || at[0].Epoch != want || !at[0].Map.Equal(circuit.Shift(Ports, 1)) {
		t.Fatalf("recovered %+v, want epoch %d", at[0], want)
	}
}

// disabled: a plane that an operator has disabled stays disabled.
func disabled(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	l.Record(controller.Event{Time: time.Now(), Kind: controller.Commanded, Plane: 1, Epoch: 0, Port: -1, Who: "ann",
		Err: "disabled by ann"}, nil)
	l, at := Next(t, s, l)
	if at[1].Disabled != "disabled by ann" || at[1].Failed {
		t.Fatalf("recovered %+v", at[1])
	}
	l.Record(controller.Event{Time: time.Now(), Kind: controller.Commanded, Plane: 1, Epoch: 0, Port: -1, Who: "bob"}, nil)
	l, at = Next(t, s, l)
	defer Resign(t, l)
	if at[1].Disabled != "" {
		t.Fatalf("recovered %+v", at[1])
	}
}

// jobs: a job is kept from its begin to its end, and one that begins again is kept once.
func jobs(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	job := controller.Job{ID: "17", Name: "train", Ports: []int{1, 0}, Mask: 2, Since: time.Unix(5, 0).UTC(), Who: "slurm"}
	began := controller.Event{Time: time.Now(), Kind: controller.Began, Plane: 1, Port: -1, Job: &job}
	other := controller.Job{ID: "18", Ports: []int{2}, Mask: 2}
	require.NoError(t, Record(t, l, began))
	require.NoError(t, Record(t, l, began))
	l.Record(controller.Event{Time: time.Now(), Kind: controller.Began, Plane: 1, Port: -1, Job: &other}, nil)
	l, at := Next(t, s, l)
	if len(at[1].Jobs) != 2 || !reflect.DeepEqual(at[1].Jobs[0], job) || at[0].Jobs != nil {
		t.Fatalf("recovered %+v", at)
	}
	l.Record(controller.Event{Time: time.Now(), Kind: controller.Ended, Plane: 1, Port: -1, Job: &job}, nil)
	l, at = Next(t, s, l)
	defer Resign(t, l)
	if len(at[1].Jobs) != 1 || at[1].Jobs[0].ID != "18" {
		t.Fatalf("recovered %+v", at[1])
	}
}

// confirmed: an event that the core waits for is in the history when the answer comes, and so are all
// before it; a rule that has ended confirms nothing.
func confirmed(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	for i := range 5 {
		l.Record(controller.Event{Time: time.Now(), Kind: controller.Attached, Plane: -1, Port: i}, nil)
	}
	off := controller.Event{Time: time.Now(), Kind: controller.Commanded, Plane: 0, Port: -1, Who: "ann",
		Err: "disabled by ann"}
	require.NoError(t, Record(t, l, off))
	events, err := s.History(t.Context(), controller.AllEvents())
	require.NoError(t, err)
	if len(events) != 6 || events[0].Err != off.Err {
		t.Errorf("%d events, newest %+v", len(events), events[:min(len(events), 1)])
	}
	Resign(t, l)
	if err := Record(t, l, off); !errors.Is(err, controller.ErrNotLeader) {
		t.Errorf("confirmed by a rule that has ended: %v", err)
	}
}

// Record makes an event durable, or returns the error.
func Record(t *testing.T, l controller.Journal, e controller.Event) error {
	t.Helper()
	return answer(t, "an event", func(done func(error)) { l.Record(e, done) })
}

// answer makes a request and returns the error that the journal answers.
func answer(t *testing.T, what string, request func(done func(error))) error {
	t.Helper()
	answers := make(chan error, 2)
	request(func(err error) { answers <- err })
	select {
	case err := <-answers:
		return err
	case <-time.After(Patience):
		t.Fatal(what + " has not been answered")
		return nil
	}
}

func deposed(t *testing.T, s journal.Store) {
	old := Lead(t, s)
	l, _ := Next(t, s, old)
	select {
	case <-old.Done():
	default:
		t.Error("the rule has ended, but is not done")
	}
	if err := old.Err(); !errors.Is(err, controller.ErrNotLeader) {
		t.Errorf("a rule that has ended: %v", err)
	}
	if err := Intend(t, old, controller.Intent{To: circuit.Shift(Ports, 1)}); !errors.Is(err, controller.ErrNotLeader) {
		t.Errorf("the intent of a rule that has ended: %v", err)
	}
	old.Record(switched(0, 9, circuit.Shift(Ports, 1)), nil)
	old.Baseline([]controller.Recovered{{Map: circuit.Shift(Ports, 1)}})
	l, at := Next(t, s, l)
	Resign(t, l)
	if len(at) > 0 && at[0].Map != nil {
		t.Errorf("a rule that has ended left %+v", at[0])
	}
}

func oneRuler(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if second, err := s.Campaign(ctx); err == nil {
		t.Fatalf("token %d rules beside %d", second.Token(), l.Token())
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	Resign(t, l)
}

func otherFabric(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	require.NoError(t, Intend(t, l, controller.Intent{Plane: 1, To: circuit.Shift(Ports, 1)}))
	l.Record(switched(1, 1, circuit.Shift(Ports, 1)), nil)
	Resign(t, l)
	for _, size := range [][2]int{{Ports + 1, Planes}, {Ports, Planes - 1}} {
		l, err := s.Campaign(t.Context())
		require.NoError(t, err)
		if _, err := l.Recovered(size[0], size[1]); !errors.Is(err, journal.ErrOtherFabric) {
			t.Errorf("a fabric of %d ports and %d planes: %v", size[0], size[1], err)
		}
		Resign(t, l)
	}
}

// Await reads the history until ok returns true.
func Await(t *testing.T, s controller.History, q controller.Query,
	ok func([]controller.Event) bool) []controller.Event {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		events, err := s.History(t.Context(), q)
		require.NoError(t, err)
		if ok(events) {
			return events
		}
		if time.Now().After(deadline) {
			t.Fatalf("the history is not what it should be: %d events, newest %+v", len(events), events[:min(len(events), 1)])
		}
	}
}

func newest(n int) func([]controller.Event) bool {
	return func(events []controller.Event) bool { return len(events) == n }
}

func history(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	defer Resign(t, l)
	began := time.Now().Truncate(time.Millisecond)
	const n = 40
	for i := range n {
		e := controller.Event{Time: began.Add(time.Duration(i) * time.Second), Kind: controller.Granted, Plane: i % 2,
			Port: i, Mask: 3, Who: fmt.Sprint("rank ", i)}
		if i%4 == 0 {
			e.Kind, e.Plane = controller.Attached, -1
		}
		l.Record(e, nil)
	}
	all := Await(t, s, controller.AllEvents(), newest(n))
	for i, e := range all {
		if e.Port != n-1-i || e.Who != fmt.Sprint("rank ", e.Port) ||
			!e.Time.Equal(began.Add(time.Duration(e.Port)*time.Second)) {
			t.Fatalf("entry %d is %+v", i, e)
		}
		if i > 0 && e.Seq >= all[i-1].Seq {
			t.Fatalf("entry %d has number %d after %d", i, e.Seq, all[i-1].Seq)
		}
	}
	for name, q := range map[string]controller.Query{
		"plane": {Plane: 1},
		"kind":  {Plane: controller.AnyPlane, Kinds: []controller.EventKind{controller.Attached, controller.Failed}},
		"since": {Plane: controller.AnyPlane, Since: began.Add(25 * time.Second)},
		"limit": {Plane: controller.AnyPlane, Limit: 7},
		"page":  {Plane: controller.AnyPlane, Limit: 7, Before: all[6].Seq},
		"none":  {Plane: 9},
	} {
		var want []controller.Event
		for i := range all {
			if q.Match(&all[i]) && (q.Limit == 0 || len(want) < q.Limit) {
				want = append(want, all[i])
			}
		}
		got, err := s.History(t.Context(), q)
		require.NoError(t, err)
		if len(got) != len(want) {
			t.Fatalf("%s: %d events, want %d", name, len(got), len(want))
		}
		for i := range got {
			if got[i].Seq != want[i].Seq {
				t.Errorf("%s: entry %d has number %d, want %d", name, i, got[i].Seq, want[i].Seq)
			}
		}
	}
}

// historyGoesOn: numbers rise across rules, though every core begins with 1.
func historyGoesOn(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	for round := range 3 {
		if l.LastSeq() != uint64(4*round) {
			t.Fatalf("round %d goes on after %d", round, l.LastSeq())
		}
		for i := range 4 {
			l.Record(controller.Event{Seq: uint64(i + 1), Time: time.Now(), Kind: controller.Attached, Plane: -1,
				Port: round*4 + i}, nil)
		}
		l, _ = Next(t, s, l)
	}
	defer Resign(t, l)
	for i, e := range Await(t, s, controller.AllEvents(), newest(12)) {
		if e.Seq != uint64(12-i) || e.Port != 11-i {
			t.Fatalf("entry %d: number %d of port %d", i, e.Seq, e.Port)
		}
	}
}

// forgetful is the number of events that the store of historyForgets keeps.
const forgetful = 20

func historyForgets(t *testing.T, s journal.Store) {
	l := Lead(t, s)
	defer Resign(t, l)
	seen := 0
	for i := range 10 * forgetful {
		l.Record(controller.Event{Time: time.Now(), Kind: controller.Attached, Plane: -1, Port: i}, nil)
		if i%5 == 4 { // written in several pieces
			seen = i
			Await(t, s, controller.Query{Plane: controller.AnyPlane, Limit: 1}, func(e []controller.Event) bool {
				return len(e) == 1 && e[0].Port == seen
			})
		}
	}
	events := Await(t, s, controller.AllEvents(), func(e []controller.Event) bool {
		return len(e) > 0 && e[0].Port == seen
	})
	if len(events) < forgetful || len(events) > 2*forgetful {
		t.Fatalf("%d events are kept, not about %d", len(events), forgetful)
	}
}
