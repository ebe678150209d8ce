package lumos

import (
	"strings"
	"testing"
)

// table1 is LumosCore's Table 1 as printed.
const table1 = `
Clos(2-tier) 2.05k 0.51k 0.13k 0.03k 8.19k 2.05k 0.51k 0.13k 32.77k 8.19k 2.05k 0.51k
Clos(3-tier) 65.54k 8.19k 1.02k 0.13k 524.29k 65.54k 8.19k 1.02k 4194.3k 524.29k 65.54k 8.19k
Clos(3-tier-15:1) 122.88k 15.36k 1.92k 0.22k 983.04k 122.88k 15.36k 1.92k 7864.32k 983.04k 122.88k 15.36k
LumosCore(tau=2) 262.0k 65.0k 16.0k 4.0k 1048.0k 262.0k 65.0k 16.0k 4194.0k 1048.0k 262.0k 65.0k
LumosCore(tau=1) 524.29k 131.07k 32.77k 8.19k 2097.15k 524.29k 131.07k 32.77k 8388.61k 2097.15k 524.29k 131.07k`

func TestTable1(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(table1), "\n")
	all := Architectures()
	if len(rows) != len(all) {
		t.Fatalf("%d rows, want %d", len(all), len(rows))
	}
	for i, a := range all {
		cells := strings.Fields(rows[i])
		if a.Name != cells[0] {
			t.Errorf("row %d is %s, want %s", i, a.Name, cells[0])
		}
		next := 1
		for _, chip := range ChipTbps {
			for _, port := range PortGbps {
				if got := a.Thousands(a.GPUs(Radix(chip, port), TableOCS)) + "k"; got != cells[next] {
					t.Errorf("%s, %g T, %d G: %s, want %s", a.Name, chip, port, got, cells[next])
				}
				next++
			}
		}
		if next != len(cells) {
			t.Errorf("%s: %d cells, want %d", a.Name, next-1, len(cells)-1)
		}
	}
}
