package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"modernc.org/sqlite"
)

// connector opens a file with a driver of our own, so that it does not matter what else is registered under the driver's name.
type connector string

// Connect implements driver.Connector. Its error names the file, which SQLite's own does not.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.Driver().Open(string(c))
	if err != nil {
		path, _, _ := strings.Cut(strings.TrimPrefix(string(c), "file:"), "?")
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return conn, nil
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }
