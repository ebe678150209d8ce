// Package fabric reads and writes the two configuration files of an optical fabric: the
// fabric file (ranks, planes, switches, costs) and the configuration of the emulated
// switch.
//
// Layer: inside plans. Its only I/O is reading the named file; it opens no devices and
// knows no drivers beyond their names.
//
// Both formats are strict. A field that is unknown, repeated or of another type, and one
// that contradicts another, is an error that names its line and path, as in
// "line 5: planes[1].ports: rank 3 has no port". YAML features that hide what a file says
// (anchors, aliases, tags, several documents) are refused.
package fabric
