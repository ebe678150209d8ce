package packaging

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/shim"
)

// deb returns the path of a package that make packages has built.
func deb(t *testing.T, name string) string {
	t.Helper()
	dist := os.Getenv("LIGHTPATH_DIST")
	if dist == "" {
		t.Skip("LIGHTPATH_DIST names no packages: make test-packages does")
	}
	needs(t, "dpkg")
	needs(t, "dpkg-deb")
	found, err := filepath.Glob(filepath.Join(dist, name+"_"+shim.Version+"_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %d packages %s of version %s", dist, len(found), name, shim.Version)
	}
	return found[0]
}

func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

// output runs a program that has to succeed.
func output(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// target is a root directory of its own with an empty database of packages.
type target struct {
	*testing.T
	dir string
}

func newTarget(t *testing.T) *target {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("dpkg installs as root only")
	}
	r := &target{t, t.TempDir()}
	if err := os.MkdirAll(r.path("var/lib/dpkg/info"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write("var/lib/dpkg/status", "")
	return r
}

func (r *target) path(name string) string { return filepath.Join(r.dir, name) }

func (r *target) write(name, text string) {
	r.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(r.path(name), []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

func (r *target) exists(name string) bool {
	_, err := os.Stat(r.path(name))
	return err == nil
}

func (r *target) dpkg(args ...string) string {
	r.Helper()
	return output(r.T, nil, "dpkg", append([]string{"--root=" + r.dir, "--force-script-chrootless", "--force-depends",
		"--force-confold", "--log=/dev/null"}, args...)...)
}

// one returns the only file that a pattern names.
func (r *target) one(pattern string) string {
	r.Helper()
	found, err := filepath.Glob(r.path(pattern))
	if err != nil || len(found) != 1 {
		r.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

// newer is the package with a higher version and another default of a configuration file.
func newer(t *testing.T, path string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "unpacked")
	output(t, nil, "dpkg-deb", "-R", path, dir)
	edit := func(name, old, text string) {
		t.Helper()
		before := read(t, filepath.Join(dir, name))
		after := strings.Replace(before, old, text, 1)
		if after == before {
			t.Fatalf("%s has no %q", name, old)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit("DEBIAN/control", "Version: "+shim.Version, "Version: "+shim.Version+"+next")
	edit("etc/lightpath/fabric.yaml", "version: 1", "version: 1\n# new default")
	edit("etc/lightpath/ocsd.yaml", "version: 1", "version: 1\n# new default")
	out := filepath.Join(t.TempDir(), "newer.deb")
	output(t, nil, "dpkg-deb", "--root-owner-group", "-Znone", "-b", dir, out)
	return out
}

// TestInstall: installed, used, upgraded, removed, purged.
func TestInstall(t *testing.T) {
	commands, libraries := deb(t, "lightpath"), deb(t, "liblightpath-nccl")
	r := newTarget(t)
	r.dpkg("-i", commands, libraries)
	program := r.path("usr/bin/lightpath")
	r.doctor(program)
	if out := output(t, nil, program, "ocsd", "--help"); !strings.Contains(out, "--config") {
		t.Errorf("ocsd --help: %s", out)
	}
	if out := output(t, nil, program, "--version"); !strings.Contains(out, shim.Version) {
		t.Errorf("--version: %s", out)
	}
	// Two ranks of the installed worker, on the installed library and its core.
	output(t, nil, program, "bench", "allreduce", "-n", "2", "-b", "4096", "-e", "4096", "-i", "1", "-w", "0", "--timeout",
		"60s")
	r.builds()
	r.serves(program)

	mine := read(t, r.path("etc/lightpath/fabric.yaml")) + "# mine\n"
	r.write("etc/lightpath/fabric.yaml", mine)
	r.write("var/lib/lightpath/etcd/state", "state")
	r.dpkg("-i", newer(t, commands))
	if got := read(t, r.path("etc/lightpath/fabric.yaml")); got != mine {
		t.Errorf("an upgrade changed a configuration that was edited:\n%s", got)
	}
	if !strings.Contains(read(t, r.path("etc/lightpath/ocsd.yaml")), "# new default") {
		t.Error("an upgrade left the default of a configuration that was not edited")
	}
	if !r.exists("var/lib/lightpath/etcd/state") {
		t.Error("an upgrade lost the state")
	}
	r.dpkg("-r", "lightpath")
	if r.exists("usr/bin/lightpath") || !r.exists("etc/lightpath/fabric.yaml") ||
		!r.exists("var/lib/lightpath/etcd/state") {
		t.Error("removing takes the program, and leaves configuration and state")
	}
	r.dpkg("-P", "lightpath")
	r.dpkg("-P", "liblightpath-nccl")
	for _, gone := range []string{"etc/lightpath", "var/lib/lightpath", "usr/share/lightpath", "usr/include/lightpath",
		"usr/share/doc/lightpath"} {
		if r.exists(gone) {
			t.Errorf("purging left %s", gone)
		}
	}
}

// doctor holds what the installed program finds against what is installed.
func (r *target) doctor(program string) {
	r.Helper()
	cmd := exec.Command(program, "doctor", "--json")
	out, _ := cmd.Output() // it may miss something else on this host
	var findings []struct {
		Check, Detail string
		OK            bool
	}
	if err := json.Unmarshal(out, &findings); err != nil {
		r.Fatalf("doctor: %v in %s", err, out)
	}
	seen := 0
	for _, f := range findings {
		switch f.Check {
		case "libnccl.so.2", "liblightpath.so", "lightpath-rank":
			if seen++; !f.OK || !strings.HasPrefix(f.Detail, r.dir) {
				r.Errorf("doctor: %s: %s", f.Check, f.Detail)
			}
		}
	}
	if seen != 3 {
		r.Errorf("doctor looks at %d files", seen)
	}
}

// serves runs the controller on the installed configuration as the unit does: it says when it is ready,
// its socket is the group's, and it ends when it is told to.
func (r *target) serves(program string) {
	r.Helper()
	dir, err := os.MkdirTemp("", "lightpath") // a socket's path is short
	if err != nil {
		r.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"fabric.yaml", "ocsd.yaml"} {
		text := strings.NewReplacer("/run/lightpath", dir, "/var/lib/lightpath",
			dir).Replace(read(r.T, r.path("etc/lightpath/"+name)))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
	}
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	cmd := exec.Command("sh", "-c", `umask 0007; exec "$0" ocsd --config "$1"`, program, filepath.Join(dir, "ocsd.yaml"))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(dir, "notify"))
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	hears := func(want string) {
		r.Helper()
		buffer := make([]byte, 64)
		if err := l.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			r.Fatal(err)
		}
		if n, err := l.Read(buffer); err != nil || string(buffer[:n]) != want {
			_ = cmd.Process.Kill()
			r.Fatalf("%q, %v; want %q: %s", buffer[:n], err, want, said.String())
		}
	}
	hears("READY=1")
	if st, err := os.Stat(filepath.Join(dir, "ocsd.sock")); err != nil || st.Mode().Perm() != 0o660 {
		r.Errorf("socket: %v, %v", st, err)
	}
	assert.NoError(r, cmd.Process.Signal(syscall.SIGTERM))
	hears("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		r.Errorf("the controller ends with %v: %s", err, said.String())
	}
}

// builds compiles a program with the flags of pkg-config, and runs it on the installed library.
func (r *target) builds() {
	r.Helper()
	for _, program := range []string{"pkg-config", "cc"} {
		if _, err := exec.LookPath(program); err != nil {
			r.Logf("%s is not installed: nothing is compiled", program)
			return
		}
	}
	env := []string{"PKG_CONFIG_LIBDIR=" + filepath.Dir(r.one("usr/lib/*/pkgconfig/lightpath.pc")),
		"PKG_CONFIG_SYSROOT_DIR=" + r.dir}
	if v := strings.TrimSpace(output(r.T, env, "pkg-config", "--modversion", "lightpath")); v != shim.Version {
		r.Errorf("pkg-config has version %s", v)
	}
	flags := strings.Fields(output(r.T, env, "pkg-config", "--cflags", "--libs", "lightpath"))
	r.write("job.c", `#include <nccl.h>
int main(void) { int v = 0; return ncclGetVersion(&v) != ncclSuccess || v != NCCL_VERSION_CODE; }
`)
	output(r.T, nil, "cc", append([]string{"-o", r.path("job"), r.path("job.c")}, flags...)...)
	libdir := filepath.Dir(r.one("usr/lib/*/lightpath/libnccl.so.2"))
	output(r.T, []string{"LD_LIBRARY_PATH=" + libdir}, r.path("job"))
}

// TestContents looks at what lintian would: names, modes, owners, paths of the machine that built it.
func TestContents(t *testing.T) {
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(output(t, nil, "go", "env", "GOMODCACHE"))
	line := regexp.MustCompile(`^([-dl])([-rwxsStT]{9}) (\S+) +\d+ \S+ \S+ (\S+)`)
	for _, name := range []string{"lightpath", "liblightpath-nccl"} {
		path := deb(t, name)
		control := output(t, nil, "dpkg-deb", "-f", path)
		for _, field := range []string{"Package: " + name + "\n", "Version: " + shim.Version + "\n", "Maintainer: ",
			"Section: ", "Priority: optional", "Installed-Size: ", "Description: ", "Depends: "} {
			if !strings.Contains(control, field) {
				t.Errorf("%s: no %q in\n%s", name, field, control)
			}
		}
		for l := range strings.Lines(output(t, nil, "dpkg-deb", "-c", path)) {
			m := line.FindStringSubmatch(l)
			if m == nil {
				t.Fatalf("%s: cannot read %s", name, l)
			}
			kind, mode, owner, file := m[1], m[2], m[3], m[4]
			want := "rw-r--r--"
			if kind == "d" || strings.HasPrefix(file, "./usr/bin/") || strings.HasSuffix(file, "/lightpath-rank") {
				want = "rwxr-xr-x"
			}
			if owner != "root/root" || kind != "l" && mode != want {
				t.Errorf("%s: %s%s %s %s, want %s of root/root", name, kind, mode, owner, file, want)
			}
			if !strings.HasPrefix(file, "./usr/") && !strings.HasPrefix(file, "./etc/") {
				t.Errorf("%s: %s is no place for a package's files", name, file)
			}
		}
		dir := t.TempDir()
		output(t, nil, "dpkg-deb", "-x", path, dir)
		if _, err := os.Stat(filepath.Join(dir, "usr/share/doc", name, "copyright")); err != nil {
			t.Error(err)
		}
		err := filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text := read(t, file)
			for _, foreign := range []string{here + "/", cache} {
				if strings.Contains(text, foreign) {
					t.Errorf("%s speaks of %s", file, foreign)
				}
			}
			return binary(file, text)
		})
		assert.NoError(t, err)
	}
}

// binary reports what is wrong with a program or a library: symbols for debuggers, or a path to other
// libraries than those beside it.
func binary(path, content string) error {
	if !strings.HasPrefix(content, elf.ELFMAG) {
		return nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	if f.Section(".debug_info") != nil || f.Section(".symtab") != nil {
		return fmt.Errorf("%s is not stripped", path)
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		all, err := f.DynString(tag)
		if err != nil {
			continue // a static program has none
		}
		for _, p := range strings.Split(strings.Join(all, ":"), ":") {
			if p != "" && !strings.HasPrefix(p, "$ORIGIN") {
				return fmt.Errorf("%s looks for libraries in %s", path, p)
			}
		}
	}
	return nil
}
