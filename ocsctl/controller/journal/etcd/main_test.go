package etcd

import (
	"testing"

	"lightpath/ocsctl/controller/controllertest"
)

func TestMain(m *testing.M) { controllertest.Main(m) }
