package planning

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
)

const mscclFiles = "../../../collectives/schedule/msccl/testdata/"

func TestScheduleShow(t *testing.T) {
	text := lightpath.Succeed(t, "", "schedule", "show", "--collective", "allreduce", "--algorithm", "rabenseifner",
		"--ranks", "8",
		"--bytes", "8000")
	for _, says := range []string{"allreduce rabenseifner on 8 ranks: 6 steps, 8000 bytes; the busiest rank sends " +
		"or receives 14000", "r xor 4", "4000"} {
		if !strings.Contains(text, says) {
			t.Errorf("no %q in\n%s", says, text)
		}
	}
	var info scheduleInfo
	text = lightpath.Succeed(t, "", "schedule", "show", "--algorithm", "msccl:"+mscclFiles+"allreduce-halving-8.xml",
		"--bytes",
		"8000", "--json")
	require.NoError(t, json.Unmarshal([]byte(text), &info))
	if len(info.Steps) != 6 || info.Ranks != 8 || info.Busiest != 14000 || info.Steps[0].Bytes != 4000 ||
		!info.Steps[0].Permutation || !info.Steps[0].Reduces {
		t.Errorf("%+v", info)
	}
	text = lightpath.Succeed(t, "", "schedule", "show", "--collective", "alltoall", "--algorithm", "direct", "--ranks",
		"4",
		"--bytes", "4000", "--json")
	require.NoError(t, json.Unmarshal([]byte(text), &info))
	if len(info.Steps) != 1 || info.Steps[0].Flows != 12 || info.Steps[0].Permutation || info.Steps[0].Bytes != 1000 ||
		info.Steps[0].Busiest != 3000 {
		t.Errorf("%+v", info)
	}
}

// TestScheduleExport: an exported schedule runs like any other algorithm.
func TestScheduleExport(t *testing.T) {
	dir := t.TempDir()
	for _, place := range [][]string{nil, {"--in-place"}} {
		path := filepath.Join(dir, "a.xml")
		args := []string{"schedule", "export", "--collective", "allreduce", "--algorithm", "rabenseifner", "--ranks", "8",
			"--xml", path}
		lightpath.Succeed(t, "", append(args, place...)...)
		problem := []string{"plan", "problem", "--collective", "allreduce", "--ranks", "8", "--bytes", "8000", "--algorithm"}
		ours := lightpath.Succeed(t, "", append(problem, "rabenseifner")...)
		theirs := lightpath.Succeed(t, "", append(problem, "msccl:"+path)...)
		if ours != theirs {
			t.Errorf("the problem of the file:\n%s\nof the algorithm:\n%s", theirs, ours)
		}
	}
	if text := lightpath.Succeed(t, "", "schedule", "export", "--collective", "broadcast", "--algorithm", "binomial",
		"--ranks", "3",
		"--root", "1"); !strings.HasPrefix(text, "<algo ") || !strings.Contains(text, `root="1"`) {
		t.Errorf("standard output: %.80q", text)
	}
}

// TestMSCCLPlan: an algorithm of msccl-tools is planned.
func TestMSCCLPlan(t *testing.T) {
	text := lightpath.Succeed(t, "", "plan", "build", "--collective", "alltoall", "--algorithm",
		"msccl:"+mscclFiles+"alltoall-twostep-2x3.xml",
		"--ranks", "6", "--bytes", "6MiB", "--planes", "2", "--planner", "perstep")
	plan, err := plans.DecodePlan([]byte(text))
	if err != nil || !(plan.CCTUS > 0) {
		t.Errorf("%+v, %v", plan, err)
	}
}

func TestScheduleRefuses(t *testing.T) {
	file := "msccl:" + mscclFiles + "allreduce-ring-3.xml"
	for _, c := range []struct {
		says []string
		args []string
	}{
		{[]string{"--algorithm"}, []string{"schedule", "show"}},
		{[]string{"--collective", "--ranks"}, []string{"schedule", "show", "--algorithm", "ring"}},
		{[]string{"--algorithm", "no such algorithm"}, []string{"schedule", "show", "--algorithm", "sort", "--collective",
			"allreduce", "--ranks", "4"}},
		{[]string{"--bytes"}, []string{"schedule", "show", "--algorithm", "ring", "--collective", "allreduce", "--ranks", "4",
			"--bytes", "many"}},
		{[]string{"wrong file", "ngpus: 3, want 4"}, []string{"schedule", "show", "--algorithm", file, "--ranks", "4"}},
		{[]string{"coll"}, []string{"schedule", "export", "--algorithm", file, "--collective", "allgather"}},
		{[]string{"no such file"}, []string{"schedule", "export", "--algorithm", "msccl:nowhere.xml"}},
		{[]string{"msccl: bad file"}, []string{"plan", "problem", "--collective", "allreduce", "--ranks", "3", "--bytes",
			"3K", "--algorithm", "msccl:" + mscclFiles + "README.md"}},
		{[]string{"wrong file", "ngpus: 3, want 4"}, []string{"plan", "build", "--collective", "allreduce", "--ranks", "4",
			"--bytes", "4K", "--algorithm", file}},
	} {
		lightpath.Refuse(t, "", c.says, c.args...)
	}
}
