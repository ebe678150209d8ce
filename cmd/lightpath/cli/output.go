package cli

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// Stdout is standard output for text. If a write fails, [Run] reports the first error, so callers need not.
var Stdout io.Writer = &output{}

// Printf prints formatted text.
func Printf(format string, args ...any) { fmt.Fprintf(Stdout, format, args...) }

// Println prints a line.
func Println(args ...any) { fmt.Fprintln(Stdout, args...) }

// Print prints text without a line end.
func Print(args ...any) { fmt.Fprint(Stdout, args...) }

// failed is the first error of a write to Stdout in this run.
var failed atomic.Pointer[error]

type output struct{}

func (*output) Write(p []byte) (int, error) {
	n, err := os.Stdout.Write(p)
	if err != nil {
		failed.CompareAndSwap(nil, &err)
	}
	return n, err
}
