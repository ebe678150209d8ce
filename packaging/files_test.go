package packaging

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"lightpath/plans/fabric"
	"lightpath/shim"
)

// root is the repository's, from this directory.
const root = ".."

// TestExampleConfig: the files that a package installs are ones that the controller takes.
func TestExampleConfig(t *testing.T) {
	o, f, err := fabric.LoadOCSD("etc/ocsd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(o.Socket, "/run/lightpath/") || len(f.Planes) == 0 {
		t.Errorf("socket %s, %d planes", o.Socket, len(f.Planes))
	}
	// The unit restarts the controller after a failure: it must not forget what is disabled then.
	if o.JournalKind() != fabric.JournalFile || !strings.HasPrefix(o.Journal.Dir, "/var/lib/lightpath/") {
		t.Errorf("journal %+v", o.Journal)
	}
}

// TestSources: the repository has the files that the packages take.
func TestSources(t *testing.T) {
	configs, err := filepath.Glob("deb/*.yaml")
	if err != nil || len(configs) != 2 {
		t.Fatalf("%v, %v", configs, err)
	}
	for _, path := range configs {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Contents []struct{ Src, Dst, Type string }
			Scripts  map[string]string
		}
		if err := yaml.Unmarshal(data, &c); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var sources []string
		for _, entry := range c.Contents {
			if entry.Type != "dir" && entry.Type != "symlink" && !strings.HasPrefix(entry.Src, "build/") {
				sources = append(sources, entry.Src)
			}
			if strings.HasPrefix(entry.Dst, "/etc/") != strings.HasPrefix(entry.Type, "config") && entry.Type != "dir" {
				t.Errorf("%s: %s is of type %q: files of /etc are configuration, and no others", path, entry.Dst, entry.Type)
			}
		}
		for _, script := range c.Scripts {
			sources = append(sources, script)
		}
		for _, source := range sources {
			if found, err := filepath.Glob(filepath.Join(root, source)); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no %s", path, source)
			}
		}
	}
}

// TestScripts: the shell takes the maintainer scripts.
func TestScripts(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		if out, err := exec.Command("sh", "-n", filepath.Join("deb", name)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestUnits: systemd takes the units without complaint.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	verify := func(name string) []string {
		out, _ := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, name)).CombinedOutput() // its words count
		var complaints []string
		for line := range strings.Lines(string(out)) { // units of the host have complaints of their own
			if strings.Contains(line, "lightpath") {
				complaints = append(complaints, line)
			}
		}
		return complaints
	}
	// The program is not installed, and systemd wants to see it.
	unit := func(path string) string { return strings.ReplaceAll(read(t, path), "/usr/bin/lightpath", "/bin/true") }
	service := unit("systemd/lightpath-ocsd.service")
	write("lightpath-ocsd.service", service)
	write("lightpath-fabric@x.service", unit("systemd/lightpath-fabric@.service"))
	for _, name := range []string{"lightpath-ocsd.service", "lightpath-fabric@x.service"} {
		if complaints := verify(name); len(complaints) > 0 {
			t.Errorf("%s: %s", name, strings.Join(complaints, ""))
		}
	}
	write("lightpath-ocsd.service.d/kernel.conf", read(t, "systemd/kernel-planes.conf"))
	write("lightpath-fabric@fabric.service", unit("systemd/lightpath-fabric@.service"))
	if complaints := verify("lightpath-ocsd.service"); len(complaints) > 0 {
		t.Errorf("with kernel-planes.conf: %s", strings.Join(complaints, ""))
	}
	// The check can fail.
	write("lightpath-bad.service", strings.Replace(service, "ProtectHome=yes", "ProtectHom=yes", 1))
	if len(verify("lightpath-bad.service")) == 0 {
		t.Error("a misspelt setting goes unnoticed")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestContainerfile reads the file as a builder would, as far as that goes without one: known
// instructions, stages and sources that exist, and a service that does not run as root.
func TestContainerfile(t *testing.T) {
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, "container/Containerfile"), "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	known := []string{"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "STOPSIGNAL", "ENTRYPOINT", "CMD", "ENV",
		"LABEL", "EXPOSE"}
	stages := map[string]bool{}
	user, froms := "root", 0
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		instruction, rest := words[0], strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), words[0]))
		if !slices.Contains(known, instruction) {
			t.Errorf("unknown instruction: %s", line)
		}
		if froms == 0 && instruction != "ARG" && instruction != "FROM" {
			t.Errorf("before the first FROM: %s", line)
		}
		switch instruction {
		case "FROM":
			froms++
			user = "root"
			if image := words[1]; !strings.Contains(image, ":") || strings.HasSuffix(image, ":latest") {
				t.Errorf("%s has no version", image)
			}
			if len(words) == 4 && words[2] == "AS" {
				stages[words[3]] = true
			}
		case "COPY":
			sources := words[1 : len(words)-1]
			if stage, ok := strings.CutPrefix(sources[0], "--from="); ok {
				if !stages[stage] {
					t.Errorf("there is no stage %q", stage)
				}
				continue
			}
			for _, s := range sources {
				if _, err := os.Stat(filepath.Join(root, s)); err != nil {
					t.Errorf("COPY: %v", err)
				}
			}
		case "USER":
			user = rest
		case "VOLUME", "ENTRYPOINT", "CMD":
			var list []string
			if err := json.Unmarshal([]byte(rest), &list); err != nil || len(list) == 0 {
				t.Errorf("%s is no list: %v", line, err)
			}
		}
	}
	if user == "root" || user == "0" || froms != 2 {
		t.Errorf("it runs as %s, from %d stages", user, froms)
	}
}

// TestContainerTools: the tools find their files where the Containerfile puts them.
func TestContainerTools(t *testing.T) {
	r := &target{t, t.TempDir()}
	built := strings.NewReplacer("/out/", root+"/bin/", "/src/", root+"/")
	copied := regexp.MustCompile(`(?m)^COPY --from=build (.+) (\S+)$`).FindAllStringSubmatch(
		read(t, "container/Containerfile"), -1)
	for _, m := range copied {
		if err := os.MkdirAll(filepath.Dir(r.dir+m[2]), 0o755); err != nil {
			t.Fatal(err)
		}
		for source := range strings.FieldsSeq(built.Replace(m[1])) {
			if _, err := os.Stat(source); err != nil {
				t.Skipf("there is no %s: make builds it", source)
			}
			if strings.HasSuffix(source, "/") {
				source += "."
			}
			output(t, nil, "cp", "-a", source, r.dir+m[2])
		}
	}
	r.doctor(r.path("usr/bin/lightpath"))
}

// TestPythonVersion: the Python package has Lightpath's version.
func TestPythonVersion(t *testing.T) {
	data, err := os.ReadFile("python/pyproject.toml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^version = "(.*?)"`).FindSubmatch(data)
	if found == nil || string(found[1]) != shim.Version {
		t.Errorf("python/pyproject.toml: version %q, want %q", found, shim.Version)
	}
}

// TestChart: the controller takes the configuration that the Helm chart renders.
func TestChart(t *testing.T) {
	folder := os.Getenv("LIGHTPATH_CHART")
	if folder == "" {
		t.Skip("LIGHTPATH_CHART names no rendered chart: make test-chart does")
	}
	configs, err := filepath.Glob(filepath.Join(folder, "*/ocsd.yaml"))
	if err != nil || len(configs) < 2 {
		t.Fatalf("%v, %v", configs, err)
	}
	for _, path := range configs {
		o, f, err := fabric.LoadOCSD(path)
		if err != nil {
			t.Fatal(err)
		}
		if o.JournalKind() != fabric.JournalEtcd || o.TLS.CA == "" || len(f.Controller.Endpoints) < 2 {
			t.Errorf("%s: journal %+v, TLS %+v, controllers %+v", path, o.Journal, o.TLS, f.Controller)
		}
	}
}
