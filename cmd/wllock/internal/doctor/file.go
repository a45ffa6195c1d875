package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/wllock/wllock/distributed/sqllock/sqlite"
)

// file looks at a file of SQLite, and changes nothing on the disk. So it takes no lock: that creates files beside this one, which belong to
// whoever asks.
func (p *patient) file(ctx context.Context) {
	err := sqlite.Check(p.url.String())
	what := "this user may keep locks in the file"
	if err != nil {
		what = err.Error()
	}
	p.judge(err != nil, Error, Finding{
		Subject: "access", What: what, Means: "processes of this user fail at their first lock with this error",
		Mend: "one local directory that all processes that lock share, of which each container mounts the whole, and one user: docs/sql.md",
	})
	p.formats()
	reads := *p.url
	reads.RawQuery = "mode=ro"
	db, err := sqlite.OpenDB(reads.String())
	if err != nil {
		p.fail(Finding{Subject: "file", What: err.Error(), Means: "no process can open it"})
		return
	}
	defer func() { _ = db.Close() }()
	d := database{p, db}
	var state string
	switch err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&state); {
	case errors.Is(err, fs.ErrNotExist):
		p.warn(Finding{
			Subject: "file", What: "there is none yet: the first lock creates it", Means: "or services have another path",
			Mend: "compare WLLOCK_BACKEND of the services",
		})
		return
	case err != nil:
		p.fail(Finding{Subject: "file", What: err.Error(), Means: "this user cannot look at locks", Mend: "run it as the user of the services"})
		return
	}
	p.judge(state != "ok", Error, Finding{
		Subject: "file", What: fmt.Sprintf("SQLite %s, quick_check %s", d.text(ctx, "SELECT sqlite_version()"), state), Means: "the file is damaged",
		Mend: "stop all processes, and take the file away: locks are made anew, with fences by the clock",
	})
	tables := d.text(ctx, "SELECT COUNT(*) FROM sqlite_master WHERE name IN ('wllock_locks', 'wllock_waiters', 'wllock_meta')")
	p.judge(tables != "3", Warning, Finding{
		Subject: "tables", What: tables + " of 3", Means: "no process has kept locks in this file", Mend: "wllock migrate, or the first lock",
	})
	if tables == "3" {
		p.unused(ctx)
	}
}
