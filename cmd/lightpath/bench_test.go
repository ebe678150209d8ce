package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/bench"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// TestBenchWrongResults: elements that are wrong on any rank make the answer no, after the table and
// the document, which say so too.
func TestBenchWrongResults(t *testing.T) {
	dir := t.TempDir()
	worker := filepath.Join(dir, "worker")
	script := `#!/bin/sh
rank=$(sed -n 's/^rank=//p' "$2")
echo '{"rank":'$rank',"collective":"allreduce","bytes":8,"count":2,"inplace":0,"time_us":5,"wrong":'$rank'}'
`
	if err := os.WriteFile(worker, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for ranks, wrong := range map[int]int64{1: 0, 3: 3} {
		f := &benchFlags{jsonOut: filepath.Join(dir, "out.json"), check: 1}
		o := &bench.Options{Ranks: ranks, Transport: "shm", Worker: worker, Spec: bench.Spec{
			Collective: schedule.AllReduce, Type: datatype.Float32, Op: datatype.Sum, MinBytes: 8, MaxBytes: 8, Factor: 2, Iters: 1, OutOfPlace: true,
		}}
		cmd := newBenchCommand()
		cmd.SetContext(t.Context())
		err := runBench(cmd, f, o)
		if wrong == 0 && err != nil {
			t.Errorf("nothing wrong: %v", err)
		}
		if wrong > 0 && (!errors.Is(err, errNo) || !strings.Contains(err.Error(), "allreduce of 8 bytes: 3 wrong elements")) {
			t.Errorf("%d wrong: %v", wrong, err)
		}
		var doc bench.Document
		if err := json.Unmarshal([]byte(content(t, f.jsonOut)), &doc); err != nil || len(doc.Results) != 1 || doc.Results[0].Wrong != wrong || doc.Ranks != ranks {
			t.Errorf("%+v, %v; want %d wrong of %d ranks", doc, err, wrong, ranks)
		}
	}
}
