package gnmi

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/ocsctl/driver/gnmi/dialect"
)

// minSample is the shortest interval of SAMPLE. maxBatch is the largest number of updates of a notification.
const (
	minSample = 10 * time.Millisecond
	maxBatch  = 512
)

// subscription is the request of one stream.
type subscription struct {
	s       *server
	stream  gpb.GNMI_SubscribeServer
	changes [][]*gpb.PathElem // to be told when they change
	samples [][]*gpb.PathElem // to be told every interval
	every   time.Duration
	quiet   bool                    // no initial values
	told    map[string]dialect.Leaf // of changes, by path
}

// Subscribe implements gNMI.
func (s *server) Subscribe(stream gpb.GNMI_SubscribeServer) error {
	if err := s.up(); err != nil {
		return err
	}
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	list := first.GetSubscribe()
	paths := make([]*gpb.Path, len(list.GetSubscription()))
	for i, one := range list.GetSubscription() {
		paths[i] = one.GetPath()
	}
	if err := s.oneRoot(list.GetPrefix(), paths); err != nil {
		return err
	}
	sub, err := s.subscription(stream, list)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := sub.start(); err != nil {
		return err
	}
	switch list.GetMode() {
	case gpb.SubscriptionList_ONCE:
		return nil
	case gpb.SubscriptionList_POLL:
		return sub.poll()
	default:
		return sub.follow(stream.Context())
	}
}

func (s *server) subscription(stream gpb.GNMI_SubscribeServer, list *gpb.SubscriptionList) (*subscription, error) {
	if len(list.GetSubscription()) == 0 {
		return nil, errors.New("the first message has no subscription")
	}
	sub := &subscription{s: s, stream: stream, quiet: list.GetUpdatesOnly(), told: make(map[string]dialect.Leaf)}
	for _, one := range list.GetSubscription() {
		at, err := s.words.Join(list.GetPrefix(), one.GetPath())
		if err != nil {
			return nil, err
		}
		if one.GetMode() != gpb.SubscriptionMode_SAMPLE {
			sub.changes = append(sub.changes, at)
			continue
		}
		sub.samples = append(sub.samples, at)
		if every := max(time.Duration(one.GetSampleInterval()), minSample); sub.every == 0 || every < sub.every {
			sub.every = every
		}
	}
	return sub, nil
}

// under keeps the leaves below any of the paths.
func under(leaves []dialect.Leaf, paths [][]*gpb.PathElem) []dialect.Leaf {
	return slices.DeleteFunc(slices.Clone(leaves), func(l dialect.Leaf) bool {
		return !slices.ContainsFunc(paths, func(p []*gpb.PathElem) bool { return dialect.Within(p, l.Elems) })
	})
}

// start sends all values, and then sync_response.
func (sub *subscription) start() error {
	all := sub.s.leaves()
	leaves := under(all, append(slices.Clip(sub.changes), sub.samples...))
	for _, l := range under(all, sub.changes) {
		sub.told[dialect.String(l.Elems)] = l
	}
	if sub.quiet {
		leaves = nil
	}
	if err := sub.tell(leaves, nil); err != nil {
		return err
	}
	return sub.stream.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}})
}

func (sub *subscription) poll() error {
	for {
		switch m, err := sub.stream.Recv(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.GetPoll() == nil:
			return status.Error(codes.InvalidArgument, "a poll is expected")
		}
		if err := sub.start(); err != nil {
			return err
		}
	}
}

// follow sends changes and samples until the client leaves.
func (sub *subscription) follow(ctx context.Context) error {
	var tick <-chan time.Time
	if sub.every > 0 {
		t := time.NewTicker(sub.every)
		defer t.Stop()
		tick = t.C
	}
	for {
		hardware, edited := sub.s.changed()
		if err := sub.difference(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-hardware:
		case <-edited:
		case <-tick:
			if err := sub.tell(under(sub.s.leaves(), sub.samples), nil); err != nil {
				return err
			}
		}
	}
}

// difference sends the values that have changed since they were last sent, except powers, which always change.
func (sub *subscription) difference() error {
	now := make(map[string]dialect.Leaf, len(sub.told))
	var fresh []dialect.Leaf
	for _, l := range under(sub.s.leaves(), sub.changes) {
		at := dialect.String(l.Elems)
		now[at] = l
		if old, ok := sub.told[at]; (!ok || old.Value != l.Value) && !sub.s.words.Ports.Measured(l) {
			fresh = append(fresh, l)
		}
	}
	var gone []*gpb.Path
	for at, l := range sub.told {
		if _, ok := now[at]; !ok {
			gone = append(gone, &gpb.Path{Origin: sub.s.words.Origin, Elem: l.Elems})
		}
	}
	sub.told = now
	return sub.tell(fresh, gone)
}

// tell sends values and deletions as notifications.
func (sub *subscription) tell(fresh []dialect.Leaf, gone []*gpb.Path) error {
	for first := true; first && len(gone) > 0 || len(fresh) > 0; first = false {
		batch := fresh[:min(len(fresh), maxBatch)]
		fresh = fresh[len(batch):]
		n := &gpb.Notification{Timestamp: time.Now().UnixNano(), Update: updates(batch, sub.s.words.Origin)}
		if first {
			n.Delete = gone
		}
		if err := sub.stream.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}}); err != nil {
			return err
		}
	}
	return nil
}
