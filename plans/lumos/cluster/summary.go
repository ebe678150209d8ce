package cluster

import "slices"

// Summary are the averages of a result. Times are in seconds.
type Summary struct {
	// JRT is the time that jobs run, JWT that they wait, JCT both.
	JRT, JWT, JCT float64
	Waited        int // jobs that had to wait
	// Busy is the share of the GPUs that jobs hold, on average from the first arrival to the last.
	Busy float64
	// Contention is the mean contention level of the jobs that communicate between servers.
	Contention float64
	CrossPod   int // jobs in several pods
	Makespan   float64
}

// Summarize returns the averages of a result of these jobs.
func (r *Result) Summarize(jobs []Job) Summary {
	var s Summary
	communicate := 0
	for i, o := range r.Outcomes {
		s.JRT += o.Finish - o.Start
		s.JWT += o.Start - jobs[i].Arrival
		s.JCT += o.Finish - jobs[i].Arrival
		s.Makespan = max(s.Makespan, o.Finish)
		if o.Start > jobs[i].Arrival {
			s.Waited++
		}
		if o.Pods > 1 {
			s.CrossPod++
		}
		if o.Ideal > 0 {
			communicate++
			s.Contention += o.Communication / o.Ideal
		}
	}
	s.Busy = r.busy(jobs)
	n := float64(len(jobs))
	s.JRT /= n
	s.JWT /= n
	s.JCT /= n
	if s.Contention /= float64(communicate); communicate == 0 {
		s.Contention = 1
	}
	return s
}

// busy returns [Summary.Busy].
func (r *Result) busy(jobs []Job) float64 {
	first, last := jobs[0].Arrival, jobs[len(jobs)-1].Arrival
	if last <= first {
		return 0
	}
	held := 0.0
	for i, o := range r.Outcomes {
		held += float64(jobs[i].GPUs) * max(0, min(o.Finish, last)-min(o.Start, last))
	}
	return held / (float64(r.Fabric.GPUs) * (last - first))
}

// Column returns a number of every job, in ascending order.
func (r *Result) Column(of func(job int, o Outcome) float64) []float64 {
	all := make([]float64, len(r.Outcomes))
	for i, o := range r.Outcomes {
		all[i] = of(i, o)
	}
	slices.Sort(all)
	return all
}
