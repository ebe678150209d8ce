package comm_test

import (
	"testing"

	"lightpath/shim/shimtest"
)

func TestMain(m *testing.M) {
	shimtest.Main(m, map[string]func() int{"full": fullProcess, "narrow": narrowProcess})
}
