package recording

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"lightpath/plans/iteration/trace"
)

// ErrJob is wrapped by errors about files of which no trace can be made.
var ErrJob = errors.New("no trace of these recordings")

// member is a communicator as one of its ranks knows it.
type member struct {
	file *File
	comm int // in the file
}

// communicator is a communicator of the job.
type communicator struct {
	id      uint64
	members []member // by rank; file nil: there is none
	used    bool     // it has calls
	job     []int    // the ranks of the job of its ranks
	events  []event  // the calls of its ranks, in order
}

func (c *communicator) name() string { return fmt.Sprintf("%016x", c.id) }

// join adds the rank of a file.
func (c *communicator) join(m member) error {
	e := &m.file.Comms[m.comm]
	if len(c.members) != e.Ranks {
		return fmt.Errorf("%w: communicator %s has %d ranks, and %d in %s", ErrJob, c.name(), len(c.members), e.Ranks,
			m.file.process())
	}
	if other := c.members[e.Rank].file; other != nil {
		return fmt.Errorf("%w: communicator %s: %s and %s both are rank %d: files of two runs?", ErrJob, c.name(),
			other.process(), m.file.process(), e.Rank)
	}
	c.members[e.Rank] = m
	return nil
}

// job is a set of files.
type job struct {
	files []*File
	comms []*communicator // in the order of their making, by the files
	of    map[member]*communicator
	ranks int
}

// gather sorts what the files hold by communicator.
func gather(files []*File) (*job, error) {
	j := &job{files: files, of: map[member]*communicator{}}
	known := map[uint64]*communicator{}
	for _, f := range files {
		for i, e := range f.Comms {
			if e.Ranks == 0 {
				continue // it has no calls
			}
			c := known[e.ID]
			if c == nil {
				c = &communicator{id: e.ID, members: make([]member, e.Ranks)}
				known[e.ID] = c
				j.comms = append(j.comms, c)
			}
			m := member{f, i}
			if err := c.join(m); err != nil {
				return nil, err
			}
			j.of[m] = c
		}
		for i := range f.Calls {
			if call := &f.Calls[i]; !call.GroupEnd {
				j.of[member{f, call.Comm}].used = true
			}
		}
	}
	j.comms = slices.DeleteFunc(j.comms, func(c *communicator) bool { return len(c.members) < 2 })
	for _, c := range j.comms {
		for r, m := range c.members {
			if c.used && m.file == nil {
				return nil, fmt.Errorf("%w: communicator %s (%d ranks): the file of rank %d is missing", ErrJob, c.name(),
					len(c.members), r)
			}
		}
	}
	return j, j.number()
}

func (f *File) process() string { return fmt.Sprintf("process %d on %s", f.PID, f.Host) }

// number gives each rank of each communicator its rank of the job.
func (j *job) number() error {
	world := j.world()
	rank := j.byFile(world)
	if j.ranks > trace.MaxRanks {
		return fmt.Errorf("%w: %d ranks are above %d", ErrJob, j.ranks, trace.MaxRanks)
	}
	for _, c := range j.comms {
		if !c.used {
			continue
		}
		c.job = make([]int, len(c.members))
		seen := map[int]bool{}
		for r, m := range c.members {
			at, ok := j.through(m, world)
			if !ok {
				at = rank[m.file]
			}
			if at < 0 || seen[at] {
				return fmt.Errorf("%w: communicator %s: rank %d is in %s, which has several ranks, and it was not split from a "+
					"communicator of all", ErrJob, c.name(), r, m.file.process())
			}
			c.job[r], seen[at] = at, true
		}
	}
	return nil
}

// byFile counts the ranks of the job. It returns the rank of each process; -1: it has several.
func (j *job) byFile(world *communicator) map[*File]int {
	rank := map[*File]int{}
	if world == nil {
		j.ranks = len(j.files)
		for r, f := range j.byProcess() {
			rank[f] = r
		}
		return rank
	}
	j.ranks = len(world.members)
	for r, m := range world.members {
		if _, several := rank[m.file]; several {
			r = -1
		}
		rank[m.file] = r
	}
	return rank
}

// world returns the largest communicator, if all processes have a rank in it and no rank is missing.
func (j *job) world() *communicator {
	if len(j.comms) == 0 {
		return nil
	}
	world := slices.MaxFunc(j.comms, func(a, b *communicator) int { return len(a.members) - len(b.members) })
	files := map[*File]bool{}
	for _, m := range world.members {
		if m.file == nil {
			return nil
		}
		files[m.file] = true
	}
	if len(files) < len(j.files) {
		return nil
	}
	return world
}

// byProcess returns the files in the order of their launcher's ranks, else by host and process.
func (j *job) byProcess() []*File {
	files := slices.Clone(j.files)
	seen := make([]bool, len(files))
	whole := true
	for _, f := range files {
		if f.Launcher < 0 || f.Launcher >= len(files) || seen[f.Launcher] {
			whole = false
			break
		}
		seen[f.Launcher] = true
	}
	slices.SortStableFunc(files, func(a, b *File) int {
		if whole {
			return a.Launcher - b.Launcher
		}
		return cmp.Or(cmp.Compare(a.Host, b.Host), a.PID-b.PID)
	})
	return files
}

// through finds the rank of the job by the communicators from which m was split.
func (j *job) through(m member, world *communicator) (int, bool) {
	for world != nil && m.comm >= 0 {
		if j.of[m] == world {
			return m.file.Comms[m.comm].Rank, true
		}
		m.comm = m.file.Comms[m.comm].Parent
	}
	return 0, false
}
