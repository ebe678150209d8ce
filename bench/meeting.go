package bench

import (
	"fmt"
	"io"
	"sync"
)

// launched is the path by which a job file names the launcher instead of a file (cgo/rank/rank.h).
const launched = "-"

// meeting lets ranks that share no files meet: each rank asks on its standard output, and gets an answer on its
// standard input. It is safe for concurrent use after the last join.
type meeting struct {
	mu      sync.Mutex
	inputs  []io.Writer // by rank; empty if ranks meet through files
	jobs    [][]byte    // by rank
	arrived int         // ranks at the present barrier
}

// join adds the input and the job of the next rank.
func (m *meeting) join(input io.Writer, job []byte) {
	m.inputs, m.jobs = append(m.inputs, input), append(m.jobs, job)
}

// begin sends the ranks their jobs. No rank asks for anything before it has its job.
func (m *meeting) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, in := range m.inputs {
		_, _ = fmt.Fprintf(in, "%send\n", m.jobs[r])
	}
}

// arrive takes a request of a rank: the unique id for all other ranks, or "" for a barrier. A rank that has ended gets
// no answer; its end is reported where its output ends.
func (m *meeting) arrive(rank int, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == "" {
		if m.arrived++; m.arrived < len(m.inputs) {
			return
		}
		m.arrived = 0
	}
	for r, in := range m.inputs {
		if id == "" || r != rank {
			_, _ = fmt.Fprintln(in, id)
		}
	}
}
