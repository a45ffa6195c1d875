package dbtest

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/wllock/wllock/internal/testproc"
)

// mariadbPrograms are where packages put the server.
var mariadbPrograms = []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/opt/mariadb/bin"}

type mariadb struct{}

func (mariadb) scheme() string { return "mysql" }
func (mariadb) query() string  { return "" }

func (mariadb) client(port int, database, script string) testproc.Command {
	return testproc.Command{
		Path: mariadbProgram("mariadb"), Env: []string{"MYSQL_PWD=" + password},
		Args: []string{
			"--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P", strconv.Itoa(port), "-u", account, "-N", "-B", "-D", database,
			"-e", script,
		},
	}
}

func mariadbProgram(name string) string {
	path, err := testproc.Find(name, mariadbPrograms...)
	if err != nil {
		return name
	}
	return path
}

// mariadbUser runs the server if this process is root: the account the package made for it.
func mariadbUser() string {
	for _, name := range []string{"mysql", "mariadb", "nobody"} {
		if _, err := user.Lookup(name); err == nil {
			return name
		}
	}
	return ""
}

func missingMariaDB() error {
	_, err := testproc.Find("mariadbd", mariadbPrograms...)
	return err
}

// MariaDB starts a MariaDB server.
func MariaDB(t TB, opts ...Option) *Server {
	t.Helper()
	testproc.Need(t, missingMariaDB())
	o := newOptions(opts)
	s := &Server{product: mariadb{}, Database: account, opts: o, t: t}
	s.Server = testproc.Launch(t, testproc.Spec{
		Name: "mariadb", FirstPort: firstPort, LastPort: lastPort, User: mariadbUser(), Patience: patience,
		Prepare: fillMariaDB,
		Command: func(p *testproc.Server) testproc.Command { return mariadbCommand(p, o) },
		Ready: func(p *testproc.Server) bool {
			const handshake = 10
			hello := testproc.Ask(p.Addr, nil) // length in 3 bytes, number, protocol version
			return len(hello) > 4 && hello[4] == handshake
		},
	})
	return s
}

// fillMariaDB makes the data folder and the script that creates the account whenever the server starts.
func fillMariaDB(dir string) error {
	if err := install(dir, "mariadb", mariadbUser(), installMariaDB); err != nil {
		return err
	}
	script := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %[1]s;\nCREATE USER IF NOT EXISTS %[1]s@'127.0.0.1' IDENTIFIED BY '%[2]s';\n"+
		"GRANT ALL ON *.* TO %[1]s@'127.0.0.1' WITH GRANT OPTION;\n", account, password)
	return os.WriteFile(filepath.Join(dir, "init.sql"), []byte(script), 0o644)
}

func installMariaDB(dir string) error {
	_, err := testproc.Command{
		Path: mariadbProgram("mariadb-install-db"), Dir: filepath.Dir(dir), User: mariadbUser(),
		Args: []string{
			"--no-defaults", "--datadir=" + dir, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
			"--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=0",
		},
	}.Output()
	return err
}

func mariadbCommand(p *testproc.Server, o options) testproc.Command {
	args := []string{
		"--no-defaults", "--datadir=" + filepath.Join(p.Dir, "data"), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(p.Port),
		"--socket=" + filepath.Join(p.Dir, "s"), "--pid-file=" + filepath.Join(p.Dir, "pid"), "--init-file=" + filepath.Join(p.Dir, "init.sql"),
		"--skip-name-resolve", "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=64M",
	}
	if o.noSync {
		args = append(args, "--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=OFF")
	}
	for _, setting := range o.settings {
		args = append(args, "--"+setting)
	}
	return testproc.Command{Path: mariadbProgram("mariadbd"), Args: args, Env: o.env(), User: mariadbUser()}
}
