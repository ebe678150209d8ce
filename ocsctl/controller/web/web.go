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

// Options say what a [Server] shows. Functions are called from several goroutines.
type Options struct {
	Name    string   // of this controller
	Version string   // of the program
	Planes  []string // their names, where there is no snapshot to take them from
	// Controller returns the core while it is in charge, else nil, and the name of the controller
	// that is in charge as far as it is known. Required. The value that it returns is compared with ==.
	Controller func() (c controller.Controller, leader string)
	// History reads the journal, newest first. Nil: what this process remembers.
	History func(context.Context, controller.Query) ([]controller.Event, error)
	// Switches says how the switches behind the planes are, in a slice for the caller alone. Nil: it is not known.
	Switches func(context.Context) ([]SwitchHealth, error)
	// Plans lists what was planned, to be held against what happened. Nil: nothing.
	Plans func(context.Context) ([]Plan, error)
}

// SwitchHealth is a switch behind planes, in words.
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
	history chan struct{} // tokens: reads of the journal under way
	headers time.Duration // that a request may take to arrive
	mux     *http.ServeMux
}

// Bounds of what one request may cost.
const (
	requestTimeout = 5 * time.Second
	historyReaders = 4
)

//go:embed page
var pageFiles embed.FS

// New returns the view of o. The error names the option that is missing.
func New(o Options) (*Server, error) {
	if o.Controller == nil {
		return nil, errors.New("web: Options.Controller is required")
	}
	s := &Server{o: o, metrics: newMetrics(), history: make(chan struct{}, historyReaders), headers: headerTimeout,
		mux: http.NewServeMux()}
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
	s.mux.HandleFunc("/api/status", s.serveStatus)
	s.mux.HandleFunc("/api/history", s.serveHistory)
	s.mux.HandleFunc("/api/events", s.serveEvents)
	s.mux.HandleFunc("/api/plans", s.servePlans)
	s.mux.HandleFunc("/api/plan", s.servePlan)
	s.mux.HandleFunc("/healthz", s.serveHealth)
	s.mux.HandleFunc("/readyz", s.serveReady)
	s.mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Timeout: requestTimeout,
		MaxRequestsInFlight: 8}))
	return s, nil
}

// policy is what the page may do: load what is served here, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

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

// reply writes v as JSON, or err where there is one: as status where that says more than "internal".
func reply(w http.ResponseWriter, v any, status int, err error) {
	if err != nil {
		v = problem{err.Error()}
	}
	body, jsonErr := json.Marshal(v)
	if jsonErr != nil {
		http.Error(w, jsonErr.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no answer
}
