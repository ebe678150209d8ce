package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestABIVersion compares abiVersion with the header.
func TestABIVersion(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "cgo", "front", "nccl.h"))
	if err != nil {
		t.Fatal(err)
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(abiVersion, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("NCCL_VERSION_CODE %d", 10000*major+100*minor+patch); !strings.Contains(string(text), want) {
		t.Errorf("nccl.h lacks %s", want)
	}
}

// TestOwed checks that a rank that answers nothing gets few questions.
func TestOwed(t *testing.T) {
	var o Owed
	for i := range 3 * MaxOwed {
		if o.Add(5) != (i < MaxOwed) {
			t.Fatalf("question %d", i)
		}
	}
	o.answered(5)
	if !o.Add(5) || o.Add(5) {
		t.Error("an answer makes room for one question")
	}
}
