package plantest

import (
	"os"
	"testing"
)

// Cases returns how many of n random problems a test tries: all with LIGHTPATH_TEST_LONG, a sixteenth with
// -short, else an eighth. Seeds are fixed, so a shorter run tries the first problems of a longer one.
func Cases(n int) int {
	switch {
	case os.Getenv("LIGHTPATH_TEST_LONG") != "":
		return n
	case testing.Short():
		return n / 16
	}
	return n / 8
}
