package plugins

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "load.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// ErrLoad is wrapped by errors if a plugin cannot be used.
var ErrLoad = errors.New("plugin cannot be used")

// load loads the first file that exists.
func load(files []string) (library unsafe.Pointer, file string, err error) {
	for _, file := range files {
		at := C.CString(file)
		l := C.lp_plugin_load(at)
		C.free(unsafe.Pointer(at))
		if l.handle != nil {
			return l.handle, file, nil
		}
		if l.missing == 0 {
			return nil, "", fmt.Errorf("%w: %s", ErrLoad, C.GoString(&l.error[0]))
		}
	}
	return nil, "", fmt.Errorf("%w: no such file: %s", ErrLoad, strings.Join(files, ", "))
}

// find loads the first file that exists. It returns the library's newest variable of a name ("ncclNetPlugin_v") with a
// version from oldest to newest.
func find(files []string, variable string, oldest, newest int) (at C.struct_lp_symbol, file string, err error) {
	library, file, err := load(files)
	if err != nil {
		return at, file, err
	}
	name := C.CString(variable)
	defer C.free(unsafe.Pointer(name))
	if at = C.lp_plugin_find(library, name, C.int(newest), C.int(oldest)); at.version != 0 {
		return at, file, nil
	}
	if v := C.lp_plugin_find(library, name, 64, 1).version; v != 0 {
		return at, file, fmt.Errorf("%w: %s: its interface is %s%d, want a version from %d to %d", ErrLoad, file, variable,
			int(v), oldest, newest)
	}
	return at, file, fmt.Errorf("%w: %s: it has no %s%d to %s%d", ErrLoad, file, variable, oldest, variable, newest)
}
