package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreUpToDate(t *testing.T) {
	for path, content := range files {
		have, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, content()) {
			t.Errorf("%s is not up to date: run go generate ./cgo/core", path)
		}
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{"Ranks": "ranks", "SpinLong": "spin_long", "DeadlineUS": "deadline_us",
		"PerRank": "per_rank"} {
		if got := snake(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
