package protocols

import "fmt"

// Size is a number of a [Config].
type Size struct {
	Name               string // in files; of the flag
	Value              *int   // the field
	Default, Low, High int
	Meaning            string
}

// Sizes returns the numbers of c.
func (c *Config) Sizes() []Size {
	return []Size{
		{"controllers", &c.Controllers, 2, 1, 9, "controller processes, one of which leads"},
		{"members", &c.Members, 3, 1, 9, "members of etcd"},
		{"planes", &c.Planes, 2, 1, 64, "planes with a switch each"},
		{"jobs", &c.Jobs, 2, 1, 64, "jobs that share ports and planes"},
		{"ports", &c.Ports, 6, 2, 64, "ports of each switch"},
		{"unfenced", &c.Unfenced, 0, 0, 1, "1: switches do not know the tokens of controllers"},
		{"repeats", &c.Repeats, 2, 1, 9, "how often operations repeat before tickets go out ahead; 1: they never do"},
		{"share", &c.Share, 0, 0, 1, "1: most operations keep their circuits, and halves of jobs have communicators"},
		{"turns", &c.Turns, 0, 0, 1, "1: each rank makes one call at a time, in the order of its job's program"},
		{"operations", &c.Operations, 100, 1, 1 << 30, "collectives of a run, after which all faults end"},
	}
}

// Check refuses a job of one port, which would never make a call.
func (c *Config) Check() error {
	if all := c.complete(); all.Ports < 2*all.Jobs {
		return fmt.Errorf("ports: %d are too few for %d jobs, which have at least two each", all.Ports, all.Jobs)
	}
	return nil
}
