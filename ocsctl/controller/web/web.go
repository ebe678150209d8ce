package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lightpath/ocsctl/controller"
)

// Options of a [Server]. Functions are called from several goroutines.
type Options struct {
	Name    string   // of this controller
	Version string   // of the program
	Planes  []string // names of the planes, used without a snapshot
	// Controller returns the core while it is in charge, else nil and the name of the controller in charge, if known.
	// Required. The Server compares the returned values with ==.
	Controller func() (c controller.Controller, leader string)
	// History reads the journal, newest first. nil: only events of this process are shown.
	History func(context.Context, controller.Query) ([]controller.Event, error)
	// Switches returns the state of the switches behind the planes; the caller owns the slice. nil: it is not known.
	Switches func(context.Context) ([]SwitchHealth, error)
	// Plans returns the plans to compare with the history. nil: there are none.
	Plans func(context.Context) ([]Plan, error)
}

// SwitchHealth describes a switch behind planes.
type SwitchHealth struct {
	Name   string   `json:"name"`
	Driver string   `json:"driver"`
	Model  string   `json:"model,omitempty"`
	Planes []string `json:"planes"`
	Error  string   `json:"error,omitempty"` // "": well
}

// Server is the operators' view of one controller. It is an [http.Handler]; [Server.Run] must run for
// events and metrics to come in.
type Server struct {
	o       Options
	feed    *feed
	metrics *metrics
	history chan struct{} // tokens: reads of the journal in progress
	ports   chan struct{} // tokens: requests for ports to the core in progress
	headers time.Duration // that a request may take to arrive
	timeout time.Duration // of one question to the core or the journal
	mux     *http.ServeMux
}

// Limits of one request.
const (
	requestTimeout = 5 * time.Second
	historyReaders = 4
	portReaders    = 8
)

//go:embed page
var pageFiles embed.FS

// New returns a server with options o. The error names a missing option.
func New(o Options) (*Server, error) {
	if o.Controller == nil {
		return nil, errors.New("web: Options.Controller is required")
	}
	s := &Server{o: o, metrics: newMetrics(), history: make(chan struct{}, historyReaders),
		ports: make(chan struct{}, portReaders), headers: headerTimeout, timeout: requestTimeout, mux: http.NewServeMux()}
	s.feed = newFeed(s)
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err := s.metrics.register(registry, s); err != nil {
		return nil, err
	}
	s.mux.Handle("/", http.FileServerFS(files))
	s.mux.HandleFunc("/api/events", s.serveEvents)
	for path, read := range map[string]func(*http.Request) (any, error){
		"/api/status": s.readStatus, "/api/history": s.readHistoryPage, "/api/ports": s.readPortsPage,
		"/api/plans": s.readPlans, "/api/plan": s.readPlan,
	} {
		s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { reply(w, r, read) })
	}
	s.mux.HandleFunc("/healthz", s.serveHealth)
	s.mux.HandleFunc("/readyz", s.serveReady)
	s.mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Timeout: requestTimeout,
		MaxRequestsInFlight: 8}))
	return s, nil
}

// policy lets the page load only content of this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler]. Requests that could change something are refused.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET: nothing here changes anything", http.StatusMethodNotAllowed)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// problem is the body of an answer that is an error.
type problem struct {
	Error string `json:"error"`
}

// reply answers a request with what read returns, as JSON, or with its error.
func reply(w http.ResponseWriter, r *http.Request, read func(*http.Request) (any, error)) {
	v, err := read(r)
	status := http.StatusOK
	if err != nil {
		v, status = problem{err.Error()}, http.StatusServiceUnavailable
	}
	switch {
	case errors.Is(err, errQuery):
		status = http.StatusBadRequest
	case errors.Is(err, errNoPlan):
		status = http.StatusNotFound
	}
	body, jsonErr := json.Marshal(v)
	if jsonErr != nil {
		http.Error(w, jsonErr.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has left
}
