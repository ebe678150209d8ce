package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"slices"
	"sync"
	"time"

	"lightpath/ocsctl/controller"
)

// errStandby: another controller is in charge, so there is no state to show.
var errStandby = errors.New("web: this controller stands by")

// Status is the answer of /api/status: the core's snapshot, with advice for operators.
type Status struct {
	controller.Snapshot
	Version  string         `json:"version"`
	InCharge string         `json:"in_charge"` // name of the controller in charge, "" where unknown
	Names    []string       `json:"names"`     // of planes, also where Planes is empty
	Views    []PlaneView    `json:"views"`     // of Planes, in their order
	Uses     []Use          `json:"uses"`      // of planes: granted ones first, then the queue in its order
	JobViews []JobView      `json:"job_views"` // of Jobs, in their order
	Switches []SwitchHealth `json:"switches,omitempty"`
	Problem  string         `json:"problem,omitempty"` // why there is no snapshot
}

// PlaneView adds to a plane what is not in its snapshot.
type PlaneView struct {
	Waiting string           `json:"waiting,omitempty"` // see controller.Controller
	Gone    []int            `json:"gone,omitempty"`    // missing ports that no rank is attached to
	Cause   controller.Cause `json:"cause,omitempty"`   // of being down
	Advice  *Advice          `json:"advice,omitempty"`  // what to do about it
}

// JobView has the planes of a job, because a browser's numbers have fewer than 64 bits.
type JobView struct {
	Planes []int `json:"planes"`
	Waits  []int `json:"waits"` // planes whose circuits are not set yet
}

// Use is a use of planes, granted or requested. Identifiers are text, because a browser's numbers have fewer than 64
// bits.
type Use struct {
	Granted bool      `json:"granted"`
	Holder  string    `json:"holder"` // hexadecimal
	Port    int       `json:"port"`
	Who     string    `json:"who,omitempty"`
	Planes  []int     `json:"planes"`
	Since   time.Time `json:"since"`
	Behind  []string  `json:"behind,omitempty"` // holders that it waits for
}

// status collects the present state. It does not fail: the result names the parts that are missing.
func (s *Server) status(ctx context.Context) Status {
	c, leader := s.o.Controller()
	st := Status{Version: s.o.Version, InCharge: leader, Names: s.o.Planes}
	snap, err := s.snapshot(ctx, c)
	if err != nil {
		snap = controller.Snapshot{Time: time.Now()}
		if !errors.Is(err, errStandby) {
			st.Problem = err.Error()
		}
	}
	st.Snapshot = snap
	if st.Name = cmp.Or(st.Name, s.o.Name); st.Leader {
		st.InCharge = st.Name
	}
	st.Views = make([]PlaneView, len(st.Planes))
	for j := range st.Planes {
		st.Views[j] = view(&st.Snapshot, j)
	}
	st.Uses = uses(&st.Snapshot)
	st.JobViews = make([]JobView, len(st.Jobs))
	for i := range st.Jobs {
		st.JobViews[i] = JobView{Planes: planesOf(st.Jobs[i].Mask), Waits: planesOf(st.Jobs[i].Waits)}
	}
	if s.o.Switches != nil {
		if st.Switches, err = s.o.Switches(ctx); err != nil && st.Problem == "" {
			st.Problem = fmt.Sprintf("switches: %v", err)
		}
		st.blameSwitches()
	}
	return st
}

// blameSwitches sets the error of each switch that answers and has caused a plane's failure, to the reason of that
// plane.
func (st *Status) blameSwitches() {
	for i := range st.Switches {
		s := &st.Switches[i]
		for j := range st.Planes {
			p := &st.Planes[j]
			if s.Error == "" && p.State == controller.Down && ofSwitch(st.Views[j].Cause) && slices.Contains(s.Planes, p.Name) {
				s.Error = p.Name + ": " + p.Reason
			}
		}
	}
}

// view returns facts on plane j that its snapshot lacks.
func view(snap *controller.Snapshot, j int) PlaneView {
	p := &snap.Planes[j]
	var v PlaneView
	switch p.State {
	case controller.Waiting, controller.Moving:
		v.Waiting = p.Waiting
		for _, port := range p.Missing {
			if port < len(snap.Ports) && !snap.Ports[port].Attached {
				v.Gone = append(v.Gone, port)
			}
		}
	case controller.Down:
		v.Cause, v.Advice = p.Cause, advices[p.Cause]
	}
	return v
}

// uses returns the leases and the pending requests for planes. A request waits for the holders of its planes and
// for earlier requests that share a plane with it.
func uses(snap *controller.Snapshot) []Use {
	all := []Use{}
	add := func(l *controller.LeaseSnapshot, granted bool) *Use {
		u := Use{Granted: granted, Holder: holderID(l.Holder), Port: l.Port, Planes: planesOf(l.Mask), Since: l.Since}
		if l.Port >= 0 && l.Port < len(snap.Ports) {
			u.Who = snap.Ports[l.Port].Who
		}
		all = append(all, u)
		return &all[len(all)-1]
	}
	for _, l := range snap.Leases() {
		add(&l, true)
	}
	for i := range snap.Queue {
		l := &snap.Queue[i]
		u := add(l, false)
		for _, earlier := range all[:len(all)-1] {
			if slices.ContainsFunc(earlier.Planes, func(j int) bool { return l.Mask>>j&1 != 0 }) {
				u.Behind = append(u.Behind, earlier.Holder)
			}
		}
	}
	return all
}

func holderID(h uint64) string { return fmt.Sprintf("%016x", h) }

func planesOf(mask uint64) []int {
	planes := make([]int, 0, bits.OnesCount64(mask))
	for ; mask != 0; mask &= mask - 1 {
		planes = append(planes, bits.TrailingZeros64(mask))
	}
	return planes
}

// snapshots has at most one request to the core in flight, for all clients. So many clients, or a core that
// does not answer, cost one goroutine only.
type snapshots struct {
	mu      sync.Mutex
	pending *answer
}

// answer is the core's answer, valid when done is closed.
type answer struct {
	done chan struct{}
	of   controller.Controller
	snap controller.Snapshot
	err  error
}

func (q *snapshots) ask(c controller.Controller) *answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pending != nil && q.pending.of == c {
		return q.pending
	}
	a := &answer{done: make(chan struct{}), of: c}
	q.pending = a
	go func() {
		a.snap, a.err = c.Snapshot()
		q.mu.Lock()
		if q.pending == a {
			q.pending = nil
		}
		q.mu.Unlock()
		close(a.done)
	}()
	return a
}

// snapshot asks the core. The result is shared and read-only.
func (s *Server) snapshot(ctx context.Context, c controller.Controller) (controller.Snapshot, error) {
	if c == nil {
		return controller.Snapshot{}, errStandby
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	a := s.feed.snapshots.ask(c)
	select {
	case <-a.done:
		return a.snap, a.err
	case <-ctx.Done():
		return controller.Snapshot{}, fmt.Errorf("web: the controller does not answer: %w", ctx.Err())
	}
}

func (s *Server) readStatus(r *http.Request) (any, error) { return s.status(r.Context()), nil }

// serveHealth reports whether this process works, also as a standby.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	c, _ := s.o.Controller()
	_, err := s.snapshot(r.Context(), c)
	if err != nil && !errors.Is(err, errStandby) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// serveReady reports whether this controller is in charge, or stands by for one that is.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	c, leader := s.o.Controller()
	snap, err := s.snapshot(r.Context(), c)
	switch {
	case err == nil && snap.Leader:
		fmt.Fprintln(w, "leader")
	case (err == nil || errors.Is(err, errStandby)) && leader != "":
		fmt.Fprintf(w, "standby of %s\n", leader)
	case err == nil || errors.Is(err, errStandby):
		http.Error(w, "no controller is known to be in charge", http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
