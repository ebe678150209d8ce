package status

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"time"
)

// DefaultTimeout is how long Collect waits for the answers of processes.
const DefaultTimeout = 2 * time.Second

// minTimeout is the shortest useful timeout of a question.
const minTimeout = 50 * time.Millisecond

// reply is the answer of one process, or its error.
type reply struct {
	path   string
	pid    int
	answer string
	Process
}

// Collect asks all processes with a socket in dir, and through them the ranks on other hosts, each
// for at most d. Sockets of processes that have died are removed.
func Collect(dir string, d time.Duration) (*Report, error) {
	began := time.Now()
	d = max(d, minTimeout)
	replies, err := askAll(dir, d)
	if err != nil {
		return nil, err
	}
	r := &Report{Version: 1, Time: began, Silent: []int{}, Comms: []Comm{}}
	nodes := map[string]bool{}
	for i := range replies {
		p := &replies[i]
		if p.answer != Answered {
			if p.answer != Gone {
				r.Silent = append(r.Silent, p.pid)
			}
			continue
		}
		r.Processes++
		r.Library = p.Version
		nodes[p.Node] = true
		r.merge(p.Comms)
	}
	var wg sync.WaitGroup
	for i := range r.Comms {
		wg.Go(func() {
			c := &r.Comms[i]
			c.gather(replies, nodes, d)
			diagnose(c)
		})
	}
	wg.Wait()
	slices.SortFunc(r.Comms, func(a, b Comm) int { return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.ID, b.ID)) })
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// Dumps asks all processes with a socket in dir for their flight recorders.
func Dumps(dir string, d time.Duration) ([][]byte, error) {
	paths, pids, err := sockets(dir)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for i, path := range paths {
		var docs []*json.RawMessage
		err := ask(path, askDump, max(d, minTimeout), func() any {
			docs = append(docs, new(json.RawMessage))
			return docs[len(docs)-1]
		})
		if err != nil && ProcessAnswer(pids[i]) == Silent {
			return all, fmt.Errorf("status: process %d: %w", pids[i], err)
		}
		for _, doc := range docs {
			if len(*doc) > 0 {
				all = append(all, *doc)
			}
		}
	}
	return all, nil
}

// askAll asks every process of the directory at once.
func askAll(dir string, d time.Duration) ([]reply, error) {
	paths, pids, err := sockets(dir)
	if err != nil {
		return nil, err
	}
	replies := make([]reply, len(paths))
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() {
			r := &replies[i]
			r.path, r.pid = paths[i], pids[i]
			// A stopped process never answers.
			if r.answer = ProcessAnswer(r.pid); r.answer == Stopped {
				return
			}
			err := ask(r.path, askStatus, d, func() any { return &r.Process })
			switch {
			case err == nil && r.PID != 0:
				r.answer = Answered
			case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
				r.answer = Gone // or about to end
			default:
				r.answer = ProcessAnswer(r.pid)
			}
		})
	}
	wg.Wait()
	return replies, nil
}

// merge adds the answer of one process. A rank's own report replaces reports of others on it.
func (r *Report) merge(comms []Comm) {
	for _, c := range comms {
		i := slices.IndexFunc(r.Comms, func(o Comm) bool { return o.ID == c.ID })
		if i < 0 {
			r.Comms = append(r.Comms, c)
			continue
		}
		o := &r.Comms[i]
		o.Size, o.Name, o.Circuits = max(o.Size, c.Size), cmp.Or(o.Name, c.Name), o.Circuits || c.Circuits
		o.Take(c.Ranks)
	}
}

// Take adds reports of ranks. A rank's own report replaces reports of others on it.
func (c *Comm) Take(ranks []Rank) {
	for i := range ranks {
		switch known := c.known(ranks[i].Rank); {
		case known == nil:
			c.Ranks = append(c.Ranks, ranks[i])
		case known.Answer != Answered:
			*known = ranks[i]
		}
	}
	slices.SortFunc(c.Ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
}

// gather asks for the ranks without an answer from a socket of this host: ranks on other hosts, of other users, or
// stopped ones. nodes are the nodes whose process numbers are valid here.
func (c *Comm) gather(replies []reply, nodes map[string]bool, d time.Duration) {
	unasked := func(r Rank) bool { return r.Answer == Unasked }
	for i := range c.Ranks {
		r := &c.Ranks[i]
		if r.Answer == Unasked && nodes[r.Node] {
			if a := ProcessAnswer(r.PID); a != Silent {
				r.Answer = a
			}
		}
	}
	if !slices.ContainsFunc(c.Ranks, unasked) {
		return
	}
	if asker := c.asker(replies); asker != nil {
		var ranks []Rank
		// Answers that have not come in time are missing.
		d = min(d, maxGather) // a process refuses longer ones
		_ = ask(asker.path, fmt.Sprintf("%s %s %d", askGather, c.ID, d.Milliseconds()), d+time.Second, func() any {
			return &ranks
		})
		c.Take(ranks)
	}
	for i := range c.Ranks {
		if r := &c.Ranks[i]; r.Answer == Unasked {
			r.Answer = Silent
		}
	}
}

// asker returns the process to ask about the other ranks of a communicator: the leader's process if it is on this host.
func (c *Comm) asker(replies []reply) *reply {
	for _, r := range c.Ranks { // ascending
		if r.Answer != Answered {
			continue
		}
		for i := range replies {
			if p := &replies[i]; p.answer == Answered && p.PID == r.PID && p.Node == r.Node {
				return p
			}
		}
	}
	return nil
}
