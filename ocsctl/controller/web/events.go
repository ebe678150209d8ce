package web

import (
	"fmt"
	"net/http"
	"time"
)

// Times of a stream.
const (
	writeTimeout = 5 * time.Second  // for one message to be accepted
	keepAlive    = 15 * time.Second // to keep proxies open and to detect dead peers
)

// serveEvents streams server-sent events: "status" with the whole state at first, "change" with the fields of it that
// have changed (see state), and "history" with new events.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	reader, ok := s.feed.join()
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d clients follow already, or this controller is stopping", maxReaders),
			http.StatusServiceUnavailable)
		return
	}
	defer s.feed.leave(reader)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	write := func(format string, args ...any) bool {
		// Only writers of tests have no deadlines.
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	if !write("retry: 2000\n\n") {
		return
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case m, open := <-reader.messages:
			if !open || !write("event: %s\ndata: %s\n\n", m.event, m.data) {
				return
			}
		case <-alive.C:
			if !write(": still here\n\n") {
				return
			}
		}
	}
}
