package control

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"
)

// TestLeftStarIsFreed checks that no timer keeps a star in memory when all ranks have left. A program that makes many
// short communicators would hold all of the last moment.
func TestLeftStarIsFreed(t *testing.T) {
	c, err := Lead(context.Background(), 1, nil, Secret{}, time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Start(Events{})
	c.Leave(Departure{})
	<-c.EveryoneLeft()
	c.Close()
	left := weak.Make(c)
	c = nil
	runtime.GC()
	if left.Value() != nil {
		t.Error("a star that all ranks have left is still in memory")
	}
}
