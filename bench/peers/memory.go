package peers

import (
	"slices"

	"github.com/prometheus/procfs"

	"lightpath/bench/figure"
)

// reserve returns the size of a rank's buffers: enough for the largest message, if the buffers of all contenders
// together fit into half of the available memory.
func (o *Options) reserve(ranks, contenders int) int64 {
	most := max(slices.Max(o.Sizes), 64<<10)
	if all := available(); all > 0 {
		room := all / 2 / int64(2*ranks*contenders) &^ (1<<20 - 1)
		if room < most {
			o.Progress("%d ranks: %d contenders keep buffers of %s each; larger ones are new in every sample", ranks, contenders,
				figure.Binary(float64(room)))
			return room
		}
	}
	return most
}

// available returns how many bytes of memory the system can give; 0: unknown.
func available() int64 {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	m, err := fs.Meminfo()
	if err != nil || m.MemAvailableBytes == nil {
		return 0
	}
	return int64(*m.MemAvailableBytes)
}
