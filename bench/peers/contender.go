package peers

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Subject is the contender that the others are compared with.
const Subject = "lightpath"

// contender is a library, with the commands that start its ranks.
type contender struct {
	Name string
	// Aside marks a contender that is shown but not compared: it is no peer.
	Aside bool
	// missing returns why the library cannot be measured here and what to install, or "" if it can.
	missing func(p *Programs) string
	// commands returns the processes of all ranks. job[r] is the job file of rank r.
	commands func(p *Programs, s setting, job []string) []command
	plain    bool // buffers that the library does not know
	hosts    bool // its ranks may be on several hosts
}

// Programs are the files that ranks are started from.
type Programs struct {
	Bin    string // where lightpath-rank and lightpath-rank-openmpi, -mpich are
	Python string // the interpreter for Gloo; "": the first of python3 and /usr/bin/python3 that has PyTorch
}

// setting is the configuration in which contenders are compared.
type setting struct {
	transport     string
	ranks         int
	cores         int
	busy          bool   // other programs share the processors
	libraryMemory bool   // the library allocates the buffers
	reserve       int64  // bytes of each of the two buffers of a rank
	scratch       string // directory for files of a contender
	hosts         Hosts
}

// Hosts are network namespaces of this host, as bench/hosts.sh makes them: rank r runs in namespace Tag-r, and reaches
// the others over interfaces e0, e1, ... Tag "": the ranks run on this host.
type Hosts struct {
	Tag    string
	Planes int // interfaces
}

// enter returns the words before a command that bring it to a rank's host.
func (h Hosts) enter(rank int) []string {
	if h.Tag == "" {
		return nil
	}
	return []string{"ip", "netns", "exec", h.name(rank)}
}

func (h Hosts) name(rank int) string { return fmt.Sprintf("%s-%d", h.Tag, rank) }

// interfaces returns the interfaces over which ranks reach each other.
func (h Hosts) interfaces() string {
	if h.Tag == "" {
		return "lo"
	}
	names := make([]string, h.Planes)
	for j := range names {
		names[j] = fmt.Sprintf("e%d", j)
	}
	return strings.Join(names, ",")
}

// crowded reports whether a spinning rank may keep the rank that it waits for from running.
func (s setting) crowded() bool { return s.busy || s.ranks > s.cores }

// command is one process: its program, and its environment in addition to ours.
type command struct {
	argv, env []string
}

// String returns the command as a user would type it, without the paths of this run.
func (c command) String() string {
	words := append([]string(nil), c.env...)
	for _, a := range c.argv {
		if filepath.IsAbs(a) {
			a = filepath.Base(a)
		}
		if a == "--job" {
			break
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// contenders lists all that can be compared: the subject first.
func contenders() []contender {
	return []contender{
		{Name: Subject, missing: lightpathMissing, commands: lightpath, plain: true, hosts: true},
		{Name: Subject + "-alloc", Aside: true, missing: lightpathMissing, commands: lightpath, hosts: true},
		{Name: "openmpi", missing: mpiMissing("openmpi", "openmpi-bin libopenmpi-dev"), commands: openMPI("ob1"),
			plain: true, hosts: true},
		{Name: "openmpi-ucx", missing: mpiMissing("openmpi", "openmpi-bin libopenmpi-dev"), commands: openMPI("ucx"),
			plain: true},
		{Name: "ucc", missing: uccMissing, commands: ucc, plain: true},
		{Name: "mpich", missing: mpiMissing("mpich", "mpich libmpich-dev"), commands: mpich, plain: true},
		{Name: "gloo", missing: glooMissing, commands: gloo, plain: true, hosts: true},
	}
}

func lightpathMissing(p *Programs) string { return p.lacks("lightpath-rank", "run make") }

func lightpath(p *Programs, s setting, job []string) []command {
	env := []string{"LIGHTPATH_TRANSPORT=" + s.transport}
	if s.hosts.Tag != "" {
		env = append(env, "NCCL_SOCKET_IFNAME=="+s.hosts.interfaces(), "LIGHTPATH_PLANES="+strconv.Itoa(s.hosts.Planes))
	}
	var all []command
	for r, j := range job {
		argv := append(s.hosts.enter(r), filepath.Join(p.Bin, "lightpath-rank"), "--job", j)
		all = append(all, command{argv, env})
	}
	return all
}

// mpiMissing returns a function for contender.missing: it checks the package of an MPI library and the program built
// with it.
func mpiMissing(name, packages string) func(*Programs) string {
	return func(p *Programs) string {
		if _, err := exec.LookPath("mpirun." + name); err != nil {
			return "no mpirun." + name + ": apt-get install " + packages + ", then make peers"
		}
		return p.lacks("lightpath-rank-"+name, "run make peers")
	}
}

// lacks returns "" if a rank program exists. Otherwise it returns that the program is missing, with the remedy what.
func (p *Programs) lacks(name, what string) string {
	program := filepath.Join(p.Bin, name)
	if _, err := os.Stat(program); err != nil {
		return "no " + program + ": " + what
	}
	return ""
}

func uccMissing(p *Programs) string {
	return p.lacks("lightpath-rank-ucc", "build UCC (github.com/openucx/ucc), then make peers UCC=PREFIX")
}

// openMPI starts Open MPI with a point-to-point layer. Without the name, Open MPI first tries layers that need network
// hardware. Waiting ranks yield only if ranks outnumber processors, which is fastest in both cases.
func openMPI(layer string) func(*Programs, setting, []string) []command {
	return func(p *Programs, s setting, job []string) []command {
		argv, env := startOpenMPI(s)
		argv = append(argv, "--mca", "pml", layer)
		if layer == "ucx" {
			argv = append(argv, "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any") // also without an adapter
		}
		switch {
		case layer == "ucx" && s.transport == "tcp":
			env = append(env, ucxOverTCP...)
		case layer == "ucx": // it finds shared memory by itself
		case s.transport == "tcp":
			argv = append(argv, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", s.hosts.interfaces())
		default:
			argv = append(argv, "--mca", "btl", "vader,self")
		}
		if s.crowded() {
			argv = append(argv, "--mca", "mpi_yield_when_idle", "1")
		}
		argv = append(argv, filepath.Join(p.Bin, "lightpath-rank-openmpi"), "--job", job[0])
		return []command{{argv: argv, env: env}}
	}
}

// startOpenMPI returns the command and environment with which Open MPI starts ranks. Each mpirun has a directory of its
// own, so several can run at once.
func startOpenMPI(s setting) (argv, env []string) {
	argv = []string{"mpirun.openmpi", "-np", strconv.Itoa(s.ranks), "--oversubscribe", "--bind-to", "none"}
	if os.Geteuid() == 0 {
		argv = append(argv, "--allow-run-as-root")
	}
	if s.hosts.Tag != "" {
		argv = overHosts(argv, s)
	}
	return argv, []string{"OMPI_MCA_orte_tmpdir_base=" + s.scratch}
}

// reach starts what mpirun would start on another host by ssh.
const reach = `#!/bin/sh
host=$1; shift
exec ip netns exec "$host" unshare -u sh -c "hostname $host; $*"
`

// overHosts has mpirun start a rank on each host. Open MPI tells hosts apart by their names.
func overHosts(mpirun []string, s setting) []string {
	agent := filepath.Join(s.scratch, "reach")
	if err := os.WriteFile(agent, []byte(reach), 0o700); err != nil {
		agent = err.Error() // mpirun fails with this text
	}
	names := make([]string, s.ranks)
	for r := range names {
		names[r] = s.hosts.name(r) + ":1"
	}
	argv := append(s.hosts.enter(0), "unshare", "-u", "sh", "-c", `hostname "$0"; exec "$@"`, s.hosts.name(0))
	return append(append(argv, mpirun...), "--host", strings.Join(names, ","), "--map-by", "node",
		"--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", "e0")
}

// ucc starts UCC over UCX. Open MPI only starts its ranks, which yield in the same cases as Open MPI's ranks.
func ucc(p *Programs, s setting, job []string) []command {
	argv, env := startOpenMPI(s)
	argv = append(argv, "--mca", "pml", "ob1", "--mca", "btl", "vader,self")
	if s.transport == "tcp" {
		env = append(env, ucxOverTCP...)
	}
	if s.crowded() {
		env = append(env, "PEER_YIELD=1")
	}
	return []command{{argv: append(argv, filepath.Join(p.Bin, "lightpath-rank-ucc"), "--job", job[0]), env: env}}
}

// ucxOverTCP limits UCX to TCP, between ranks of this host.
var ucxOverTCP = []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}

// mpich starts MPICH, which Debian builds over UCX. It never yields: it imports no sched_yield, so
// MPIR_CVAR_POLLS_BEFORE_YIELD has no effect. If its ranks outnumber processors, they wait for the scheduler.
func mpich(p *Programs, s setting, job []string) []command {
	c := command{argv: []string{"mpirun.mpich", "-np", strconv.Itoa(s.ranks), "-bind-to", "none"}}
	if s.transport == "tcp" {
		c.env = append(c.env, "MPIR_CVAR_NOLOCAL=1")
		c.env = append(c.env, ucxOverTCP...)
	}
	c.argv = append(c.argv, filepath.Join(p.Bin, "lightpath-rank-mpich"), "--job", job[0])
	return []command{c}
}

//go:embed gloo.py
var glooProgram []byte

// python returns an interpreter that has PyTorch, or "".
func (p *Programs) python() string {
	names := []string{p.Python}
	if p.Python == "" {
		names = []string{"python3", "/usr/bin/python3"}
	}
	for _, name := range names {
		if exec.Command(name, "-c", "import torch.distributed as d; assert d.is_gloo_available()").Run() == nil {
			return name
		}
	}
	return ""
}

func glooMissing(p *Programs) string {
	if p.Python = p.python(); p.Python == "" {
		return "no Python with PyTorch and Gloo: apt-get install python3-torch"
	}
	return ""
}

// gloo starts Gloo, which uses TCP with every transport.
func gloo(p *Programs, s setting, job []string) []command {
	program := filepath.Join(s.scratch, "gloo.py")
	if err := os.WriteFile(program, glooProgram, 0o600); err != nil {
		program = err.Error() // the ranks fail with this text
	}
	var all []command
	for r, j := range job {
		all = append(all, command{argv: append(s.hosts.enter(r), p.Python, program, "--job", j),
			env: []string{"GLOO_SOCKET_IFNAME=" + s.hosts.interfaces(), "OMP_NUM_THREADS=1"}})
	}
	return all
}

// choose returns the named contenders and the subject. A named contender that is missing is an error. Without names it
// returns all contenders that are installed, and in why the reason for each of the others.
func choose(names []string, p *Programs, hosts bool) (chosen []contender, why []string, err error) {
	wanted := map[string]bool{Subject: true}
	for _, n := range names {
		wanted[n] = true
	}
	for _, c := range contenders() {
		if len(names) > 0 && !wanted[c.Name] {
			continue
		}
		delete(wanted, c.Name)
		text := c.missing(p)
		if hosts && !c.hosts {
			text = "not over several hosts"
		}
		if text != "" {
			if c.Name == Subject || len(names) > 0 {
				return nil, nil, fmt.Errorf("peers: %s: %s", c.Name, text)
			}
			why = append(why, c.Name+" is left out: "+text)
			continue
		}
		chosen = append(chosen, c)
	}
	if len(names) > 0 {
		for n := range wanted {
			return nil, nil, fmt.Errorf("peers: no contender %q", n)
		}
	}
	return chosen, why, nil
}
