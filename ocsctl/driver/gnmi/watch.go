package gnmi

import (
	"context"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"

	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/plans/circuit"
)

// watch is a subscription to the states of a switch's circuits. It only tells the driver when to read: the driver
// reports states from a Get.
type watch struct {
	s      *swtch
	cancel context.CancelFunc
	done   chan struct{} // the subscription has ended, or the switch has none

	mu      sync.Mutex
	store   *dialect.Store
	changed chan struct{} // closed at the next notification
}

// subscribe begins a subscription. The end of the context, or stop, ends it.
func (s *swtch) subscribe(ctx context.Context) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{s: s, cancel: cancel, done: make(chan struct{}), store: dialect.NewStore(s.words),
		changed: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer cancel() // the driver does not read the stream any more
		w.listen(ctx)
	}()
	return w
}

func (w *watch) stop() {
	w.cancel()
	<-w.done
}

// Watch implements driver.Watcher on the switch's own subscription.
func (s *swtch) Watch(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.Subscribe(ctx)
	if err == nil {
		err = stream.Send(s.subscriptions())
	}
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			changed()
		}
	}
	return s.fault(err)
}

// listen folds notifications into the store until the stream ends, or has sent more than a switch says of one change.
// Why it ended does not matter: without it the driver polls.
func (w *watch) listen(ctx context.Context) {
	stream, err := w.s.client.Subscribe(ctx)
	if err != nil {
		return
	}
	if stream.Send(w.s.subscriptions()) != nil {
		return
	}
	for got := 0; got <= maxMessage; {
		m, err := stream.Recv()
		if err != nil {
			return
		}
		if got += proto.Size(m); m.GetUpdate() == nil {
			continue
		}
		w.mu.Lock()
		err = w.store.Notify(m.GetUpdate())
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// subscriptions returns a request for changes of the data from which states follow.
func (s *swtch) subscriptions() *gpb.SubscribeRequest {
	list := &gpb.SubscriptionList{Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_JSON_IETF}
	tables := []*dialect.Table{&s.words.Status}
	if len(s.words.Status.Entry) == 0 {
		tables = []*dialect.Table{&s.words.Config, &s.words.Ports}
	}
	for _, t := range tables {
		list.Subscription = append(list.Subscription, &gpb.Subscription{Path: s.words.ReadPath(t),
			Mode: gpb.SubscriptionMode_ON_CHANGE})
	}
	return &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}
}

// silence is how long the driver waits for a decisive notification before it reads.
const silence = 500 * time.Millisecond

// wait returns true when it is time to read: the switch has reported that the circuits are up or have failed, or has
// reported nothing decisive for silence. It returns false when the subscription or the context ends.
func (w *watch) wait(ctx context.Context, pairs []circuit.Pair) bool {
	long := time.After(silence)
	for {
		w.mu.Lock()
		ready, changed := decided(w.s.states(w.store, pairs)), w.changed
		w.mu.Unlock()
		if ready {
			return true
		}
		select {
		case <-changed:
		case <-long:
			return true
		case <-w.done:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
