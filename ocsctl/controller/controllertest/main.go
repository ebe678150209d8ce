package controllertest

import (
	"flag"
	"os"
	"testing"
)

// Main runs tests of which most wait for timeouts: more of them at once than there are processors.
func Main(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
