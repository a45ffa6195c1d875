package dbtest

import (
	"bytes"
	"strconv"

	"github.com/wllock/wllock/internal/testproc"
)

// Memcached starts a memcached with further arguments, such as "-m", "1".
func Memcached(t TB, args ...string) *testproc.Server {
	t.Helper()
	program, err := testproc.Find("memcached", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin")
	testproc.Need(t, err)
	return testproc.Launch(t, testproc.Spec{
		Name: "memcached", FirstPort: firstPort, LastPort: lastPort, User: "nobody",
		Command: func(p *testproc.Server) testproc.Command {
			return testproc.Command{
				Path: program, Args: append([]string{"-l", "127.0.0.1", "-p", strconv.Itoa(p.Port), "-U", "0"}, args...), User: "nobody",
			}
		},
		Ready: func(p *testproc.Server) bool {
			return bytes.HasPrefix(testproc.Ask(p.Addr, []byte("version\r\n")), []byte("VERSION"))
		},
	})
}
