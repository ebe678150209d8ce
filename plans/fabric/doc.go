// Package fabric reads and writes the two configuration files of an optical fabric: the fabric file (ranks, planes,
// switches, costs) and the configuration of its controller.
//
// Layer: inside plans. Its only I/O is to read the named file. It opens no devices and knows only the names of drivers.
//
// Both formats are strict. A field that is unknown, repeated, of another type, or contradicts another is an error that
// names its line and path, as in "line 5: planes[1].ports: rank 3 has no port". Anchors, aliases, tags and several
// documents are refused.
package fabric
