package controllertest

import (
	"flag"
	"os"
	"testing"
)

// Main runs tests, more at once than there are processors, because most wait for timeouts.
func Main(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
