package redisopts

import (
	"os"
	"strings"
)

// ReadPassword returns the content of a password file without the spaces, tabs and line ends at its end: editors and
// tools add them. White space at the start belongs to the password. The error is that of os.ReadFile and shows the path.
func ReadPassword(path string) (string, error) {
	content, err := os.ReadFile(path)
	return strings.TrimRight(string(content), " \t\r\n"), err
}
