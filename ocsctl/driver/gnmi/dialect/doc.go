// Package dialect holds the differences between the gNMI drafts of optical circuit switches as tables: paths, names of
// leaves, and words for states. One engine reads and writes all dialects: it converts leaves to records by a table's
// pattern, and records to leaves. The driver and the device model both use it.
//
// Layer: below ocsctl/driver/gnmi and ocsctl/device/gnmi. It knows gNMI's messages and no
// connection, and does no I/O.
package dialect
