// Package shimtest makes whole communicators for tests: worlds of ranks, which are goroutines of one process or
// processes of one machine, the fabrics, devices and networks under them, and the faults that they meet.
//
// Tests of whole communicators are external tests of the room that they are about: a test of lent buffers is in package
// peer_test, beside the code that lends. There it can also read what that room exports to its tests (export_test.go).
// A test of several rooms belongs to the room whose defect it would find. Package shim keeps the tests of the API:
// Init, Run, groups, arguments and settings. The packages of tests run at the same time.
//
// The parts:
//
//   - [World] is a communicator of one process; [Family] is communicators made from it.
//   - [Collective] and [Messages] make calls on all ranks and check the results against an oracle.
//   - [GPUs] are devices of a software driver. [UseEmulator], [UseControllers], [UseKernelPlanes], [UseRDMA] and
//     [UseRDMACircuits] make planes; [UsePath] takes one of them by name.
//   - [Outage] takes planes away from a communicator; sites, crossbars and networks break on demand.
//   - [StartRanks] starts ranks as processes, which a test stops or kills.
//   - [CountResources] counts what this process holds, for tests of leaks.
//
// A package that uses worlds calls [Main] from its TestMain.
//
// Helpers set the environment with Setenv of the test, because communicators read it in shim.Init. So a test that uses
// them runs in parallel with no other test of its package. [InitOne] takes settings instead of the environment.
//
// It imports package shim and its rooms. Only tests import it. It must not read unexported state of a room.
package shimtest
