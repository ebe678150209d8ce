// Package gnmi drives optical circuit switches that speak gNMI, in the dialects of package dialect. A change is one Set
// with the deletions and updates that are needed, and the token as election id. The driver waits on a subscription for
// the end of the motion, or polls if there is none. Then it reports the result of a Get.
//
// Layer: below ocsctl/driver/registry, above ocsctl/driver.
package gnmi
