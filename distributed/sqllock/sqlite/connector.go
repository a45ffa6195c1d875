package sqlite

import (
	"context"
	"database/sql/driver"

	"modernc.org/sqlite"
)

// connector opens a file with a driver of our own, so that it does not matter what else is registered under the driver's name.
type connector string

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) { return c.Driver().Open(string(c)) }

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }
