package peers

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"

	"lightpath/bench/figure"
)

// reserve is how large the buffers are that ranks keep: those of the largest size, as long as those of all contenders together are
// no more than half of the memory that there is.
func (o *Options) reserve(ranks, contenders int) int64 {
	most := max(slices.Max(o.Sizes), 64<<10)
	if all := available(); all > 0 {
		room := all / 2 / int64(2*ranks*contenders) &^ (1<<20 - 1)
		if room < most {
			o.Progress("%d ranks: %d contenders keep buffers of %s each; larger ones are new in every sample", ranks, contenders, figure.Binary(float64(room)))
			return room
		}
	}
	return most
}

// available is how many bytes of memory the system can give, 0 where it does not say.
func available() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if kb, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(kb, "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}
