package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Down removes everything with a fabric's name, complete or not, and reports whether it has found anything. If a
// process writes its circuits, or has built it as a temporary fabric, the error wraps ErrBusy, unless force is set.
// Open sockets of ranks lose their interfaces.
func Down(name string, force bool) (found bool, err error) {
	name = canonical(name)
	fail := func(err error) (bool, error) { return false, fmt.Errorf("kernel: fabric %s: %w", name, err) }
	guard, err := lock(name, buildLock)
	if err != nil {
		return fail(err)
	}
	defer unlock(guard)
	process, ended, err := owner(name)
	switch {
	case err != nil:
		return fail(err)
	case process != 0 && !ended && !force:
		return fail(fmt.Errorf("%w: process %d has built it for itself", ErrBusy, process))
	}
	held, err := writers(name)
	for _, f := range held {
		defer unlock(f) // this also removes the locks of processes that were killed
	}
	if err != nil && !force {
		return fail(err)
	}
	found = exists(name)
	if err := remove(name); err != nil {
		return fail(err)
	}
	if ended {
		os.Remove(ownerPath(name))
	}
	return found, nil
}

// names returns the names of the fabrics on this host, including incomplete ones.
func names() ([]string, error) {
	var all []string
	for _, dir := range []string{runDir, pinDir, netnsDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			switch name, kind, _ := strings.Cut(e.Name(), "."); {
			case dir == runDir && name != "" && (kind == "json" || kind == ownerFile):
				all = append(all, name)
			case dir == pinDir:
				all = append(all, e.Name())
			case dir == netnsDir:
				if name, ok := fabricOf(e.Name()); ok {
					all = append(all, name)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// fabricOf returns the fabric that a namespace belongs to by its name.
func fabricOf(namespace string) (string, bool) {
	rest, ours := strings.CutPrefix(namespace, "lp-")
	i := strings.LastIndexByte(rest, '-')
	if !ours || i < 1 {
		return "", false
	}
	name, end := rest[:i], rest[i+1:]
	if rank, isRank := strings.CutPrefix(end, "r"); isRank {
		if _, err := strconv.ParseUint(rank, 10, 16); err != nil {
			return "", false
		}
	} else if end != "ocs" {
		return "", false
	}
	return name, true
}

// namespaces returns the namespaces with a fabric's name, that of the switch first.
func namespaces(name string) ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if of, ok := fabricOf(e.Name()); ok && of == name {
			all = append(all, e.Name())
		}
	}
	slices.Sort(all) // "-ocs" before "-r0"
	return all, nil
}

// exists reports whether anything with the name exists.
func exists(name string) bool {
	for _, path := range []string{statePath(name), filepath.Join(pinDir, name)} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	all, err := namespaces(name)
	return err != nil || len(all) > 0
}

// remove removes all parts that exist. It removes the state first, because the state describes a complete fabric.
func remove(name string) error {
	err := os.Remove(statePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if left, glob := filepath.Glob(filepath.Join(runDir, "."+name+".*")); glob == nil {
		for _, path := range left {
			os.Remove(path)
		}
	}
	all, list := namespaces(name)
	err = errors.Join(err, list)
	for _, namespace := range all {
		// A process may keep a namespace alive after its name has been removed, so remove the links separately.
		if strings.HasSuffix(namespace, "-ocs") {
			if rm := within(namespace, removeLinks); rm != nil && !errors.Is(rm, unix.EINVAL) { // EINVAL: half made
				err = errors.Join(err, rm)
			}
		}
		if rm := removeNamespace(namespace); rm != nil {
			err = errors.Join(err, fmt.Errorf("namespace %s: %w", namespace, rm))
		}
	}
	// Remove the pins last: detaching a program takes long, and is not needed after its interface has been removed.
	if rm := os.RemoveAll(filepath.Join(pinDir, name)); rm != nil {
		err = errors.Join(err, rm)
	}
	return err
}

// removeLinks removes the ports of the switch in the thread's namespace, and thereby their other ends. It uses one
// request, because the kernel waits for its readers once per request.
func removeLinks() error {
	request := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(linkGroup)))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) { // half made: there is none yet
		return nil
	}
	return err
}
