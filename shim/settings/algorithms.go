package settings

import (
	"fmt"
	"strings"

	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
)

// SetAlgorithms sets Algorithms from the form of LIGHTPATH_ALGORITHM. It reads files (msccl:FILE) once, so that a later
// change of a file does not change a communicator.
func (c *Config) SetAlgorithms(v string) error {
	c.Algorithms, c.files = map[string]string{}, map[string]*msccl.File{}
	for item := range strings.SplitSeq(v, ",") {
		collective, algorithm, ok := strings.Cut(strings.TrimSpace(item), ":")
		if !ok || algorithm == "" {
			return fmt.Errorf("%q is not collective:algorithm", item)
		}
		coll, err := schedule.ParseCollective(collective)
		if err != nil {
			return err
		}
		file, err := msccl.Named(algorithm)
		switch {
		case err != nil:
			return err
		case file == nil:
			if err := schedule.Check(coll, algorithm); err != nil {
				return err
			}
		default:
			if file, err = file.As(coll); err != nil {
				return fmt.Errorf("%s: %w", item, err)
			}
			c.files[collective], algorithm = file, file.Identity()
		}
		c.Algorithms[collective] = algorithm
	}
	return nil
}

// FileFor returns the file for a collective on so many ranks, nil if there is none.
func (c *Config) FileFor(coll schedule.Collective, ranks int) *msccl.File {
	if f := c.files[coll.String()]; f != nil && f.Ranks() == ranks {
		return f
	}
	return nil
}
