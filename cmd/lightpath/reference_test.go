package main

import (
	"os"
	"testing"
)

// TestReference: the generated pages of docs/ are those of the commands and variables as they are.
func TestReference(t *testing.T) {
	pages, err := referencePages(lightpath(), "../../docs")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range pages {
		if old, err := os.ReadFile(path); err != nil || string(old) != string(text) {
			t.Errorf("%s is out of date: make reference (%v)", path, err)
		}
	}
}
