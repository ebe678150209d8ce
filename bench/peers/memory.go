package peers

import (
	"slices"

	"github.com/prometheus/procfs"

	"lightpath/bench/figure"
)

// reserve is how large the buffers are that ranks keep: those of the largest size, as long as those of all contenders
// together are no more than half of the memory that there is.
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

// available is how many bytes of memory the system can give, 0 where it does not say.
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
