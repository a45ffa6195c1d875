// Package testproc runs server processes for tests: started on a free loopback port in a temporary folder, as another user
// where a server refuses root. They are killed, restarted and paused at will, and end with the test, on Linux also when the
// test binary dies. Its TCP proxy delays, holds up, loses and cuts traffic.
//
// redistest, zktest, dbtest and others say which command it is and how a server shows that it is ready:
//
//	Launch: FreePort -> Spec.Command -> process -> Spec.Ready ... Kill, Restart, Pause, Resume ... Cleanup
package testproc
