package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"lightpath/ocsctl/controller"
)

// The largest and the default number of events of an answer.
const (
	MaxEvents     = 5000
	defaultEvents = 100
)

// errQuery reports an invalid parameter of a request. Errors that wrap it name the parameter.
var errQuery = errors.New("bad request")

// Entry is an event of the history as served: the event, with fields for readers without 64-bit numbers or the list of
// planes.
type Entry struct {
	controller.Event
	Name     string `json:"name,omitempty"`      // of the plane
	HolderID string `json:"holder_id,omitempty"` // Holder, hexadecimal
	Planes   []int  `json:"planes,omitempty"`    // of Mask
}

// HistoryPage is the answer of /api/history, newest first.
type HistoryPage struct {
	Events []Entry `json:"events"`
	// Before is the parameter for the next older page; 0: there is none.
	Before uint64 `json:"before,omitempty"`
}

func entries(events []controller.Event) []Entry {
	all := make([]Entry, len(events))
	for i := range events {
		e := &all[i]
		e.Event = events[i]
		if e.Holder != 0 {
			e.HolderID = holderID(e.Holder)
		}
		if e.Mask != 0 {
			e.Planes = planesOf(e.Mask)
		}
	}
	return all
}

// planeName returns the name of plane j, "" if it is not known.
func (s *Server) planeName(j int) string {
	if j >= 0 && j < len(s.o.Planes) {
		return s.o.Planes[j]
	}
	return ""
}

func (s *Server) readHistoryPage(r *http.Request) (any, error) {
	q, err := s.parseQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	q.Limit++ // one more shows whether there are older events
	events, err := s.readHistory(r.Context(), q)
	if err != nil {
		return nil, err
	}
	page := HistoryPage{}
	if len(events) > limit {
		events = events[:limit]
		page.Before = events[limit-1].Seq
	}
	page.Events = entries(events)
	for i := range page.Events {
		page.Events[i].Name = s.planeName(page.Events[i].Plane)
	}
	return page, nil
}

// readHistory reads the journal. It limits the number of concurrent readers.
func (s *Server) readHistory(ctx context.Context, q controller.Query) (events []controller.Event, err error) {
	if s.o.History == nil {
		return s.feed.remember(q), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	select {
	case s.history <- struct{}{}:
		defer func() { <-s.history }()
	case <-ctx.Done():
		return nil, fmt.Errorf("web: history: %d others read it: %w", historyReaders, ctx.Err())
	}
	if events, err = controller.ReadHistory(ctx, s.o.History, q); err != nil {
		err = fmt.Errorf("web: history: %w", err)
	}
	return events, err
}

// kinds are the kinds of events that a query may select.
var kinds = []controller.EventKind{
	controller.Switched, controller.Failed, controller.Restored, controller.Granted, controller.Released,
	controller.Attached, controller.Detached, controller.Began, controller.Ended, controller.Commanded,
	controller.TookOver, controller.Settled, controller.Lost, controller.Measured, controller.Dimmed,
	controller.Brightened, controller.Remapped, controller.Excluded, controller.Included,
}

// parseQuery reads plane (name or number), since (a duration before now, or a time), before (a
// sequence number), limit, and port and kind (any number of times).
func (s *Server) parseQuery(v url.Values) (controller.Query, error) {
	q := controller.Query{Plane: controller.AnyPlane, Limit: defaultEvents}
	var err error
	for name, values := range v {
		text := values[0]
		switch name {
		case "plane":
			q.Plane, err = s.parsePlane(text)
		case "since":
			q.Since, err = ParseSince(text, time.Now())
		case "before":
			if q.Before, err = strconv.ParseUint(text, 10, 64); err != nil {
				err = errors.New("not a number of an event")
			}
		case "limit":
			if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > MaxEvents {
				err = fmt.Errorf("not a number within 1..%d", MaxEvents)
			}
		case "port":
			for _, text := range values {
				port, notPort := strconv.Atoi(text)
				if notPort != nil || port < 0 {
					err = errors.New("not a number of a port")
				}
				q.Ports = append(q.Ports, port)
			}
		case "kind":
			q.Kinds, err = ParseKinds(values)
		default:
			err = errors.New("unknown parameter")
		}
		if err != nil {
			return q, fmt.Errorf("%w: %.40q: %w", errQuery, name, err)
		}
	}
	return q, nil
}

// parsePlane finds a plane by name or number; "" is any.
func (s *Server) parsePlane(text string) (int, error) {
	if text == "" {
		return controller.AnyPlane, nil
	}
	if j := slices.Index(s.o.Planes, text); j >= 0 {
		return j, nil
	}
	if j, err := strconv.Atoi(text); err == nil && j >= 0 && (j < len(s.o.Planes) || s.o.Planes == nil) {
		return j, nil
	}
	return 0, fmt.Errorf("there is no plane %.40q", text)
}

// ParseKinds reads kinds of events. It returns nil for an empty list.
func ParseKinds(texts []string) ([]controller.EventKind, error) {
	var all []controller.EventKind
	for _, text := range texts {
		k := controller.EventKind(text)
		if !slices.Contains(kinds, k) {
			return nil, fmt.Errorf("%.40q is not one of %v", text, kinds)
		}
		all = append(all, k)
	}
	return all, nil
}

// ParseSince reads a time (2006-01-02T15:04:05Z), or a duration before now (1h).
func ParseSince(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil {
		if ago < 0 {
			return time.Time{}, fmt.Errorf("%s is in the future", text)
		}
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is neither a duration (1h) nor a time (2006-01-02T15:04:05Z)", text)
	}
	return t, nil
}
