package topology

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusedFlags: numbers far outside, flags without effect and files that cannot be written are refused before the
// work, and nothing is written.
func TestRefusedFlags(t *testing.T) {
	job, none, maps := deltaJob(t), filepath.Join(t.TempDir(), "none", "x"), filepath.Join(t.TempDir(), "maps")
	kept := t.TempDir()
	for _, c := range []struct{ line, says string }{
		{"delta plan --in JOB --workers 9223372036854775807", "--workers: 9223372036854775807 is outside 0..4096"},
		{"delta plan --in JOB --workers -1", "--workers: -1 is outside"},
		{"delta plan --in JOB --time-limit 0s", "--time-limit: 0s is not positive"},
		{"delta plan --in JOB --out NONE", "--out: "},
		{"delta plan --in JOB --report NONE", "--report: "},
		{"delta plan --in JOB --fabric NONE", "--fabric: "},
		{"delta plan --in JOB --maps -", "--maps: a directory"},
		{"delta plan --in JOB --ocsd ocsd.yaml --maps MAPS", "--ocsd needs --fabric"},
		{"delta plan --in JOB --reconfig 1ms", "--reconfig needs --fabric"},
		{"delta plan --in JOB --plane-names a,b", "--plane-names needs --fabric or --maps"},
		{"delta plan --in JOB --maps KEPT --plane-names a,a,b,c", `--plane-names: "a" appears twice`},
		{"delta plan --in JOB --maps KEPT --plane-names a,b,c,../d", `--plane-names: "../d" cannot name a file`},
		{"delta plan --in JOB --fabric FABRIC --pinned-by \x01", "--fabric: bad configuration: line 14: pinned_by"},
		{"delta plan --in JOB --fabric FABRIC --ocsd KEPT/o.yaml --listen nowhere",
			"--ocsd: bad configuration: line 3: listen"},
		{"delta plan --in JOB --maps MAPS --workers -1", "--workers: -1 is outside"},
		{"delta simulate --in JOB --circuits 1,1,1 --out NONE --schedule KEPT/s.json", "--out: "},
		{"delta compare --margin 2", "--margin needs --solver"},
		{"delta compare --solver cbc --reallocate", "--reallocate has no effect with --solver"},
		{"delta exact --in JOB --write KEPT/x.lp --out KEPT/t.json", "--out has no effect with --write"},
		{"delta compare --workers 9223372036854775807", "--workers: "},
		{"delta compare --solver cbc --extra 9223372036854775807", "--extra: "},
		{"delta import --format chakra --etp 2 JOB", "--etp has no effect on files of --format chakra"},
		{"delta import --format simai --backward-us 2 JOB", "--backward-us has no effect on files of --format simai"},
		{"delta exact --in JOB --extra 9223372036854775807", "--extra: "},
		{"delta exact --in JOB --margin 9223372036854775807", "--margin: "},
		{"delta exact --in JOB --gap NaN", "--gap: NaN is not positive"},
		{"delta exact --in JOB --threads 0", "--threads: 0 is outside 1..4096"},
		{"delta exact --in JOB --schedule NONE", "--schedule: "},
		{"lumos place --pp 9223372036854775807", "--pp, --dp, --ep: "},
		{"lumos place --pp 65536 --dp 65536", "PP 65536 x DP 65536"},
		{"lumos plan --in - --maps MAPS --ocsd o.yaml", "--ocsd needs --fabric"},
		{"lumos plan --in - --groups 0", "--groups needs --fabric"},
		{"lumos plan --in - --maps MAPS --fabric f.yaml --bandwidth fast", "--bandwidth"},
		{"lumos plan --in - --fabric f.yaml --listen x", "--listen needs --ocsd"},
		{"lumos plan --in - --ocsd KEPT/o.yaml --fabric -", "--ocsd needs --fabric with a file"},
		{"lumos plan --in - --maps -", "--maps: a directory"},
		{"lumos plan --in - --maps MAPS --out NONE", "--out: "},
		{"lumos plan --in - --fabric FABRIC --ocsd KEPT/o.yaml --listen nowhere",
			"--ocsd: bad configuration: line 3: listen"},
		{"lumos plan --in - --fabric FABRIC --endpoint \x01", "--fabric: bad configuration: line 14: ocs[0].endpoint"},
		{"lumos rewire --core - --in -", "cannot both be standard input"},
		{"lumos sizes --k-ocs 9223372036854775807", "--k-ocs: "},
		{"lumos wire --check JOB --out KEPT/w.csv", "--out has no effect with --check"},
		{"lumos place --node n%d", "--node needs --hostfile or --slurm-topology"},
		{"lumos place --fabric best --requirement KEPT/r.json", "--requirement: best has no optical core"},
		{"lumos simulate --trace JOB --level 0.5", "--level needs --arrivals poisson"},
		{"lumos simulate --arrivals later", "--arrivals: \"later\""},
		{"lumos simulate --csv NONE", "--csv: "},
	} {
		line := strings.NewReplacer("JOB", job, "NONE", none, "MAPS", maps, "KEPT", kept, "FABRIC",
			filepath.Join(kept, "f.yaml")).Replace(c.line)
		lightpath.Refuse(t, lumosHead+"[]}", []string{c.says}, strings.Fields("topology "+line)...)
	}
	if _, err := os.Stat(maps); err == nil {
		t.Error("a refused command has made the directory of the maps")
	}
	if written, err := os.ReadDir(kept); err != nil || len(written) > 0 {
		t.Errorf("refused commands have written %v: %v", written, err)
	}
	lightpath.Refuse(t, lumosHead+"[{\n\"a\": 0,\n\"b\": 9}]}", []string{`links: {"a":0,"b":9} is not three numbers`},
		"topology", "lumos", "plan", "--in", "-")
}
