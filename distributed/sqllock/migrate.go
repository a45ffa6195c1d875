package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"
)

//go:embed sql/*.sql
var ddl embed.FS

// Migrate creates the tables that are missing, with the options of New that say where they are. It can be run again, and by several
// processes at a time. The user needs the right to create tables; an application can do without and run the statements of DDL
// with its own migrations.
func Migrate(ctx context.Context, db *sql.DB, dialect Dialect, opts ...Option) error {
	statements, err := DDL(dialect, opts...)
	if err != nil {
		return err
	}
	for _, one := range statements {
		err := retrying(ctx, func() error { return exec(ctx, db, one) })
		if err != nil {
			return fmt.Errorf("sqllock: migrate: %w", explain(dialect, "migrate", err))
		}
	}
	return nil
}

// DDL returns the statements of Migrate.
func DDL(dialect Dialect, opts ...Option) ([]string, error) {
	s, err := newSettings(dialect, opts)
	if err != nil {
		return nil, err
	}
	text, err := ddl.ReadFile("sql/" + dialect.String() + ".sql")
	if err != nil {
		return nil, err
	}
	var statements []string
	for one := range strings.SplitSeq(withoutComments(s.fill(string(text))), ";") {
		if one = strings.TrimSpace(one); one != "" {
			statements = append(statements, one)
		}
	}
	return statements, nil
}

// withoutComments removes what follows two dashes: the only comments in the files.
func withoutComments(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "--")
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// fill puts the names of the tables into a statement.
func (s *settings) fill(text string) string {
	return strings.NewReplacer("{locks}", s.table("locks"), "{waiters}", s.table("waiters"), "{meta}", s.table("meta")).Replace(text)
}

func exec(ctx context.Context, db *sql.DB, text string) error {
	_, err := db.ExecContext(ctx, text)
	return err
}
